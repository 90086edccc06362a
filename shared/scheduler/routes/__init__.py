"""The scheduler's HTTP API, one file for each group of routes."""
