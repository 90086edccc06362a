"""`tocsin jobs`: bulk jobs, which `tocsin events` starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..commands import add_commands
from ..session import CommandSession, api_path
from .events_bulk import print_report

_HELP = "List, show and stop bulk jobs, which tocsin events cancel, move, fire and redrive start with filters."
Id = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as tocsin jobs list shows it.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"list": list_}, watch=True)
    add_commands(group, {"get": get, "cancel": cancel})
    app.add_typer(group, name="jobs")


def list_(session: CommandSession) -> None:
    """List bulk jobs, with those that ended in the last 7 days.

    Examples:
        tocsin jobs list
        tocsin jobs list --watch 5
    """
    columns = ("id", "action", "state", "created", "count", "done", "skipped", "failed")
    session.print_list(session.items("jobs"), columns, _row, empty="no jobs")


def _row(job: Mapping[str, Any]) -> Sequence[Any]:
    return tuple(job[name] for name in ("id", "action", "state", "created", "count", "done", "skipped", "failed"))


def get(session: CommandSession, id: Id) -> None:
    """Show a bulk job: its filter, its progress, its report.

    Examples:
        tocsin jobs get 0a1b2c3d4e5f6g7h
    """
    session.print_document(session.get(api_path("jobs", id)))


def cancel(session: CommandSession, id: Id) -> None:
    """Stop a bulk job. What it has changed stays changed.

    Examples:
        tocsin jobs cancel 0a1b2c3d4e5f6g7h
    """
    print_report(session, session.send("POST", api_path("jobs", id, "cancel"), repeatable=True))
