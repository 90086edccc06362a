"""Several storage accounts behind one port."""
