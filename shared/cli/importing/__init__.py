"""`tocsin events import`: import millions of events with memory for a few batches, and resume after a stop.

This module declares the command and its options. When the command runs, it imports the other modules:

reading    turns lines of NDJSON and CSV into encoded events, and gives the reason for each rejected line
progress   stores the position of an import in a small file
sending    sends batches in parallel and settles them in the file's order
command    runs the import
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ...core.readable import count_of
from ..exits import Exit
from ..session import CommandSession

_IDS_HELP = "make: give each event without an id one made from its line. none: send such events without an id."
_UNKNOWN_HELP = "On resuming, what to do with events without ids that may be stored already: refuse, send them again, or leave them out."
_REJECTS_HELP = "File for rejected lines. Default: FILE.rejects, or FILE.faults with --check."
_PROGRESS_HELP = "File that stores how far the import is, so that it can be resumed. Default: FILE.progress."


def import_(
    session: CommandSession,
    file: Annotated[str, typer.Argument(help="File to import, such as orders.ndjson, or - for standard input.", show_default=False)],
    form: Annotated[Literal["ndjson", "csv"] | None, typer.Option("--format", help="Format. Default: csv for *.csv, else ndjson.")] = None,
    ids: Annotated[Literal["make", "none"], typer.Option(help=_IDS_HELP)] = "make",
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Events in one request.")] = 2000,
    in_flight: Annotated[int, typer.Option(min=1, max=64, help="Requests in flight at once.")] = 4,
    rejects: Annotated[Path | None, typer.Option(help=_REJECTS_HELP)] = None,
    progress: Annotated[Path | None, typer.Option(help=_PROGRESS_HELP)] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin at the first line, and ignore stored progress.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read the file and report faulty lines; send nothing.")] = False,
    unknown: Annotated[Literal["ask", "send", "skip"], typer.Option(help=_UNKNOWN_HELP)] = "ask",
) -> None:
    """Schedule the events of a file: NDJSON as POST /events takes it, or CSV with field names in its first line.

    If the import is stopped, the same command resumes it. Rejected lines do not stop it: they are written to the file of rejects with
    their line numbers, and the exit code is 1.

    Examples:
        tocsin events import orders.ndjson
        tocsin events import orders.csv --check
    """
    from .command import ImportPlan, run_import

    source = None if file == "-" else Path(file)
    stem = source or Path("stdin")
    found = form or ("csv" if stem.suffix.lower() == ".csv" else "ndjson")
    plan = ImportPlan(
        session.app,
        source,
        found,
        # A check must not overwrite the rejects of an import that was stopped.
        rejects or stem.with_name(f"{stem.name}.{'faults' if check else 'rejects'}"),
        progress or stem.with_name(f"{stem.name}.progress"),
        ids=ids == "make",
        batch=batch,
        in_flight=in_flight,
        restart=restart,
        check=check,
        unknown=unknown,
    )
    done = run_import(plan)
    where = str(plan.rejects) if done.rejected else None
    result = {"lines": done.line, "accepted": done.accepted, "known": done.known, "rejected": done.rejected, "rejects": where}
    if check:
        text = f"{count_of(done.line, 'line')} read, {count_of(done.accepted, 'event')}, {count_of(done.rejected, 'faulty line')}"
    else:
        text = f"{count_of(done.accepted, 'event')} scheduled, {done.known:,} already known, {done.rejected:,} rejected"
    session.print_result(result, f"{text}: {where}" if where else text)
    if done.rejected:
        raise typer.Exit(Exit.FAILED)
