"""Input and output of the command: tables, refreshed screens, JSON documents."""
