"""Changes of some fields of a stored resource, and replacements that show what they drop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from ...client.errors import NotFound
from ...client.resources.definitions import definition
from ..session import CommandSession
from ..terminal.output import printable
from .plan import AppReply, FieldChange, call, differences, read_reply, request
from .references import leaves
from .resources import Address

if TYPE_CHECKING:
    from ...client.exchange import ApiCall, ApiReply


def change_fields(session: CommandSession, address: Address, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Any:
    """Read the definition, change it and store it, unless it has changed meanwhile: then begin again. Returns the stored resource.

    Raises `TocsinError`: `NotFound` if there is none.
    """
    from ...client.resources.changes import Stored

    def read(reply: ApiReply) -> Stored:
        found = read_reply(reply)
        return Stored(definition(address.kind, found.document), found.etag)

    def write(body: Mapping[str, Any], tag: str) -> ApiCall[AppReply]:
        return request("PUT", address, read_reply, body, if_match=tag)

    return session.change(request("GET", address, read), write, change).document


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
