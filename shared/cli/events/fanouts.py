"""Fan-outs in `tocsin events`: read the channels of the command line, and print the events of several channels under one id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession

Channels = Annotated[list[str] | None, typer.Option(help="Channel to deliver to, such as default. Repeated: an event for each channel.")]


def channel_fields(given: list[str] | None) -> dict[str, Any]:
    """Return the fields of an event or a schedule for the channels of the command line."""
    if not given:
        return {}
    return {"channel": given[0]} if len(given) == 1 else {"channels": given}


def is_fanout(found: Mapping[str, Any]) -> bool:
    """Return True for the answer about a fan-out."""
    return "events" in found or "results" in found


def print_made(session: CommandSession, made: Mapping[str, Any]) -> None:
    """Print the answer to a request that creates a fan-out: the new one, or the stored one of the same id."""
    if session.json:
        session.emit(made)
        return
    for event in made["events"]:
        session.screen.line(f"{event['id']} is {event['state']}, due {event['due']}")


def print_fanout(session: CommandSession, found: Mapping[str, Any]) -> None:
    """Print a fan-out, one event a line."""
    if session.json:
        session.emit(found)
        return
    names = ("id", "channel", "state", "due", "late_ms", "error")
    session.screen.table(names, [tuple(each.get(name) for name in names) for each in found["events"]])


def print_report(session: CommandSession, report: Mapping[str, Any]) -> None:
    """Print the result of a call for each event of a fan-out. Raises `CommandFailed` if it changed none."""
    if session.json:
        session.emit(report)
    else:
        for line in report["results"]:
            why = f": {line['problem']['detail']}" if line.get("problem") else ""
            session.screen.line(f"{line['id']} is {line.get('state', 'not stored')}{why}")
    if not report["changed"]:
        raise CommandFailed(f"no event of {report['id']} was changed", advice="tocsin events get shows each event.", status=Exit.REFUSED)
