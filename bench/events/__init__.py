"""Figures of events: from ingest to delivery."""
