"""The agent's configuration file: read, checked and explained."""
