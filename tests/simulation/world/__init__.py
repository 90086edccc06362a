"""The simulated world: loop, host, storage, receivers, instances."""
