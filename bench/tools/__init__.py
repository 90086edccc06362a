"""Parts of the measurements: the environment, senders, receivers, and proxies."""
