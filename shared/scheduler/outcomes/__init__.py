"""What a tenant is told when an event ends: callbacks, which are events themselves."""
