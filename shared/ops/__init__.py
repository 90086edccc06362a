"""The operation of the whole service: health, metrics and telemetry export."""
