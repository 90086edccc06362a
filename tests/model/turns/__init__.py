"""The protocol of checkpoint turns, explored exhaustively over the production rules."""
