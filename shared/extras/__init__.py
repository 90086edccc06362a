"""Optional parts: BigBen's API, the Scheduled Events emulator, Kafka as a source of events."""
