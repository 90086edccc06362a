"""`tocsin jobs`, and the bulk jobs that `tocsin events` starts: count, sample, question, progress, report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from ...core.readable import count_of
from ..commands import add_commands
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, api_path
from ..terminal.output import console

POLL: Final = 0.5
"""Seconds between two looks at a job."""


def wait(session: CommandSession) -> None:
    """Wait before the next look at a job."""
    session.sleep(POLL)


def run_bulk(session: CommandSession, action: str, filter: Mapping[str, Any], yes: bool, **move: str | None) -> None:
    """Prepare a job, have its count confirmed, follow it to its end, and print its report. Raises `CommandFailed` if an event failed."""
    # The bars below are on the terminal instead.
    session.activity.disable()
    body = {"action": action, "filter": dict(filter)} | {name: value for name, value in move.items() if value is not None}
    job = session.send("POST", "jobs", body, repeatable=True)
    path = api_path("jobs", job["id"])
    with _bar("counting") as show:
        while job["state"] == "counting":
            wait(session)
            job = session.get(path)
            show(job)
    if not job["count"]:
        session.send("POST", api_path("jobs", job["id"], "cancel"), repeatable=True)
        session.print_result(job, "no events match")
        return
    if not session.json:
        rows = [(each["id"], each["due"], each["state"], each["channel"]) for each in job["sample"]]
        more = f" (the first {len(rows)})" if job["count"] > len(rows) else ""
        session.screen.table(("id", "due", "state", "channel"), rows, title=f"{count_of(job['count'], 'event')} match{more}")
        session.flush()
    try:
        session.confirm(f"{action.capitalize()} {count_of(job['count'], 'event')}", yes)
    except CommandFailed:
        session.send("POST", api_path("jobs", job["id"], "cancel"), repeatable=True)
        raise
    job = session.send("POST", api_path("jobs", job["id"], "confirm"), {"confirmation": job["confirmation"]}, repeatable=True)
    try:
        with _bar(action) as show:
            while job["state"] == "running":
                show(job)
                wait(session)
                job = session.get(path)
    except KeyboardInterrupt:
        typer.echo(f"The job goes on. Stop it with: tocsin jobs cancel {job['id']}", err=True)
        raise
    print_report(session, job)
    if job["failed"] or job["state"] != "done":
        raise typer.Exit(Exit.FAILED)


def print_report(session: CommandSession, job: Mapping[str, Any]) -> None:
    """Print what a job has done."""
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(job["reasons"].items()))
    why = f": {reasons}" if reasons else ""
    text = f"{job['action']} {job['state']}: {job['done']:,} of {count_of(job['count'], 'event')}, {job['skipped']:,} skipped"
    session.print_result(job, f"{text}, {job['failed']:,} failed{why}")
    if not session.json and job["failures"]:
        session.screen.table(("id", "reason"), [(each["id"], each["reason"]) for each in job["failures"]], title="failed")


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda job: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def show(job: Mapping[str, Any]) -> None:
            seen = job["done"] + job["skipped"] + job["failed"]
            total = job["count"] if job["state"] != "counting" else None
            bar.update(task, total=total, completed=seen, description=f"{what} {seen or job['count']:,}")

        yield show


def move_options(due: str | None, later: str | None, earlier: str | None) -> dict[str, str | None]:
    """Return the fields of a move. Raises `CommandFailed` unless one of them is given."""
    if sum(value is not None for value in (due, later, earlier)) != 1:
        raise CommandFailed("give one of --due, --later and --earlier", advice="For example: --later 1h", status=Exit.USAGE)
    return {"due": due, "later": later, "earlier": earlier}


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
