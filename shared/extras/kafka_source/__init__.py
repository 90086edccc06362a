"""Kafka as a source of events: topics that the app consumes."""
