"""`tocsin heartbeat`: say that a job is alive, and be told when it is silent."""

from __future__ import annotations

from typing import Annotated

import typer

from ..commands import add_commands
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, api_path, parse_json_option
from ..terminal.times import duration_option

_NAME_HELP = "Name of the monitor, such as backup."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"heartbeat": heartbeat})


def heartbeat(
    session: CommandSession,
    name: Annotated[str, typer.Argument(help=_NAME_HELP, show_default=False)],
    within: Annotated[str | None, duration_option("The next call must come within this duration, such as 10m.")] = None,
    channel: Annotated[
        str | None, typer.Option(help="Channel that gets the event if no call comes. The app's default is: default.")
    ] = None,
    payload: Annotated[str | None, typer.Option(help="JSON that the event carries, such as '{\"job\": 1}'; @FILE reads a file.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only show the monitor.")] = False,
    end: Annotated[bool, typer.Option("--end", help="End the monitor.")] = False,
) -> None:
    """Say that a job is alive. An event is delivered if the next call does not come within a time.

    Examples:
        tocsin heartbeat backup --within 25h --channel ops
        tocsin heartbeat backup --show
        tocsin heartbeat backup --end
    """
    path = api_path("heartbeats", name)
    if sum((within is not None, show, end)) != 1:
        raise CommandFailed("give one of --within, --show and --end", advice="For example: --within PT10M", status=Exit.USAGE)
    if end:
        session.send("DELETE", path)
        session.print_result({"heartbeat": name, "ended": True}, f"monitor {name} is ended")
        return
    if show:
        session.print_document(session.get(path))
        return
    body = {"within": within, **({"channel": channel} if channel else {})}
    if payload is not None:
        body["payload"] = parse_json_option(payload, "--payload")
    # Two calls have the effect of one.
    found = session.send("POST", path, body, repeatable=True)
    session.print_result(found, f"{name} is alive; the next call must come by {found['due']}")
