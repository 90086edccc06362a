"""Input and output of the command: tables, screens that refresh, JSON documents."""
