"""Maintenance: Azure's Scheduled Events are seen, prepared for, approved, and recovered from. docs/explain/maintenance.md is its page."""
