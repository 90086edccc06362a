"""Changes of one event by requests of which an earlier one goes on after a later one was acknowledged, exhaustively."""
