"""The lease protocol, explored exhaustively."""
