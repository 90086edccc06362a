"""Maintenance: Azure's Scheduled Events are seen, prepared for, approved, and recovered from. docs/maintenance.md is its page."""
