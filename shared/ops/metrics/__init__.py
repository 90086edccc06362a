"""The metrics for Prometheus: `/api/metrics`, read from tables."""
