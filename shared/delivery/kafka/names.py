"""Patterns for server lists and topic names."""

from __future__ import annotations

SERVERS = r"^[A-Za-z0-9_\[][A-Za-z0-9._:\[\]-]*:[0-9]{1,5}(?:,[A-Za-z0-9_\[][A-Za-z0-9._:\[\]-]*:[0-9]{1,5}){0,7}$"
"""One to eight `host:port`, separated by commas."""
TOPIC = r"^[A-Za-z0-9._-]{1,249}$"
"""Characters that Kafka allows in a topic's name."""
