"""Looking events up: single events, lists, statistics and totals."""
