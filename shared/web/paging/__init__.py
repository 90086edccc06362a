"""Lists in pages: cursors and page answers."""
