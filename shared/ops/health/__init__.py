"""Is the app alive, and can it do its work: `/api/healthz` and `/api/readyz`."""
