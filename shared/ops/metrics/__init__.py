"""What a Prometheus server reads: `/api/metrics`, from tables."""
