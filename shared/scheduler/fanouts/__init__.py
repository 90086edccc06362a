"""Fan-outs: one request whose event goes to several channels, as one event for each."""
