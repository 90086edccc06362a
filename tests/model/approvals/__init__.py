"""One event that names nodes of one fleet or two, and its approvals, explored exhaustively."""
