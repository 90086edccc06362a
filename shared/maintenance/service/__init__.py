"""Maintenance in the app: agents' reports, approvals, notices and sweeps."""
