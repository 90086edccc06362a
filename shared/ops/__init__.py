"""What operators see of the whole service: health, metrics and telemetry export."""
