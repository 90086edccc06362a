"""The guard `prepare`, exhaustively: agents and the app by their production rules, with lost and late answers, restarts, cancellations."""
