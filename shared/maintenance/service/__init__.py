"""What runs in the app: agents' reports, approvals, notifications and sweeps."""
