"""Definitions: the part of an answer that a PUT takes, and the merge of named fields into it. Pure; the command uses it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

STATE: Final = {
    "tenant": {"name", "uid", "created"},
    "channel": {"name", "created", "paused", "reason", "paused_at", "flow", "rotated_at", "previous_until", "secret"},
    "calendar": {"name"},
    "fleet": {"name", "created", "generation", "resizing"},
    "schedule": {"id", "tenant", "created", "paused", "revision", "next", "last", "missed", "skipped", "reads_as"},
}
"""Members of an answer that are no part of the definition."""
_WHOLE: Final = frozenset({"retry", "per_key", "payload"})
"""Objects whose members belong together, so that they are replaced as a whole. A payload is one, because its content is the user's."""


def definition(kind: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition that an answer of the API shows, without its state."""
    return {name: value for name, value in answer.items() if name not in STATE[kind]}


def merged(stored: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored definition with the named fields. Objects are merged member by member, and null removes (RFC 7396)."""
    found = dict(stored)
    for name, value in named.items():
        before = found.pop(name, None)
        if isinstance(value, dict) and name not in _WHOLE:
            inside = before if isinstance(before, dict) else {}
            if name == "headers":
                # The names of headers do not depend on case.
                given = {each.lower() for each in value}
                inside = {each: text for each, text in inside.items() if each.lower() not in given}
            found[name] = merged(inside, value)
        elif value is not None:
            found[name] = value
    return found
