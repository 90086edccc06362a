"""The part of leases that runs in servers: the keeper, its two loops, and the callbacks of the application."""
