"""Changes of some fields of a stored resource, and replacements that show what they drop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from ...client.errors import Changed, NotFound
from ..session import CommandSession
from ..terminal.output import printable
from .plan import AppReply, FieldChange, call, differences
from .references import leaves
from .resources import Address, definition

_TRIES: Final = 5
_WHOLE: Final = frozenset({"retry", "per_key"})
"""Objects whose members belong together, so that they are replaced as a whole."""


def merged(stored: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored definition with the named fields. Objects are merged member by member, and null removes (RFC 7396)."""
    found = dict(stored)
    for name, value in named.items():
        before = found.pop(name, None)
        if isinstance(value, dict) and name not in _WHOLE:
            inside = before if isinstance(before, dict) else {}
            if name == "headers":
                # The case of their names does not matter.
                given = {each.lower() for each in value}
                inside = {each: text for each, text in inside.items() if each.lower() not in given}
            found[name] = merged(inside, value)
        elif value is not None:
            found[name] = value
    return found


def change_fields(session: CommandSession, address: Address, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:
    """Read the definition, change it and store it, unless it has changed meanwhile: then begin again. Returns the stored resource.

    Raises `TocsinError`: `NotFound` if there is none.
    """
    for tries in range(1, _TRIES + 1):
        now = call(session, "GET", address)
        body = change(definition(address.kind, now.document))
        try:
            return call(session, "PUT", address, body, if_match=now.etag).document
        except Changed:
            if tries == _TRIES:
                raise
    raise AssertionError("unreachable")


def replace_all(session: CommandSession, address: Address, body: Any, *, yes: bool, **query: str) -> Any:
    """Store a whole definition. Show the stored fields that it does not name and so drops; ask first if standard input is a terminal.

    Returns the stored resource. Raises `TocsinError`, and `CommandFailed` for a no.
    """
    try:
        now: AppReply | None = call(session, "GET", address)
    except NotFound:
        now = None
    dropped = _dropped(session, address, now.document, body, query) if now is not None else ()
    if now is None or not dropped:
        return call(session, "PUT", address, body, **query).document
    session.activity.hide()
    typer.echo(f"{address}: the new definition does not name these fields, which are reset (set changes named fields only):", err=True)
    for each in dropped:
        typer.echo(printable(f"  {each.text()}"), err=True)
    if sys.stdin.isatty():
        session.confirm(f"Replace {address}", yes)
    # What was shown is what is dropped.
    return call(session, "PUT", address, body, if_match=now.etag, **query).document


def _dropped(session: CommandSession, address: Address, stored: Any, body: Any, query: Mapping[str, str]) -> tuple[FieldChange, ...]:
    planned = call(session, "PUT", address, body, dry_run="true", **query)
    named = {path for path, _ in leaves(body)} if isinstance(body, dict) else set()
    changes = differences(definition(address.kind, stored), definition(address.kind, planned.document))
    return tuple(each for each in changes if each.before is not None and each.field not in named)
