"""Changing sides: a mirrored pair's failover to the second account, and the way back to the first."""
