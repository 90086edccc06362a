"""Looking events up: single events, lists, statistics and totals; `views` builds what callers see of an event."""
