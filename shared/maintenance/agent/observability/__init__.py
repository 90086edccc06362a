"""The agent's log, its metrics, and its endpoints for probes."""
