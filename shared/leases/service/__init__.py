"""The part of leases that runs in the app: servers that speak HTTP, takeovers, plans, manual controls and views."""
