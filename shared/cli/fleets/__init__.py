"""Commands about fleets: leases, checkpoint turns and maintenance, a module a group."""
