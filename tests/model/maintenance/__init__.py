"""The agent of a node, exhaustively: two events, and every order of what may happen to them, to hooks, POSTs, looks and the process."""
