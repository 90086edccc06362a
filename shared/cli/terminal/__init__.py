"""Input and output of the command: tables, times, JSON documents."""
