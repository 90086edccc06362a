"""Commands that run on nodes: the maintenance agent, checkpoint turns, the Scheduled Events emulator."""
