"""The probes of the app: `/api/healthz` (alive) and `/api/readyz` (ready to work)."""
