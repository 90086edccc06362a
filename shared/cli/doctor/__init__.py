"""`tocsin doctor` and `tocsin leases doctor`: what is wrong with a tenant or a fleet, what that means, and what corrects it."""
