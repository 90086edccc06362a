"""A mirrored pair of accounts: failover to the second account, and failback to the first."""
