"""`tocsin what-if export`: write the data of the app that a twin needs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from ...core.durations import parse_duration, parse_time
from ...core.readable import count_of
from ...whatif.export import ExportOptions, SnapshotExporter
from ...whatif.snapshot import MAX_EVENTS, BadSnapshot
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, read_if_allowed, usage_errors
from ..terminal.times import duration_option, time_option

_LIMIT_HELP: Final = "Largest number of events to read. Of more events, a sample is read that represents all."
Output = Annotated[Path, typer.Argument(metavar="FILE", help="File to write, such as monday.json.", show_default=False)]


def export(
    session: CommandSession,
    file: Output,
    from_: Annotated[str | None, time_option("Beginning of the window, such as 12:00. Default: now.", "--from")] = None,
    for_: Annotated[str, duration_option("Length of the window, such as 2h; at most 24h.", "--for")] = "PT1H",
    limit: Annotated[int, typer.Option(min=100, max=MAX_EVENTS, metavar="N", help=_LIMIT_HELP)] = 20_000,
    fleet: Annotated[list[str] | None, typer.Option(metavar="FLEET", help="Only this fleet. May be given several times.")] = None,
    without_fleets: Annotated[bool, typer.Option("--without-fleets", help="Leave out all fleets: the run is much faster.")] = False,
) -> None:
    """Write due events, schedules, channels, fleets and announced maintenance of a tenant to a file for tocsin what-if run.

    The file holds times, names, sizes and figures. Payloads, ids, labels, URLs, headers and secrets are not in it.
    Channels and the tenant's settings are read with an admin key; another key takes defaults for them, and says so.

    Examples:
        tocsin what-if export monday.json
        tocsin what-if export noon.json --from 11:45 --for 2h --limit 50000
        tocsin what-if export events.json --for 6h --without-fleets
    """
    with usage_errors("--from"):
        first = parse_time(from_) if from_ is not None else round(time.time() * 1000)
    with usage_errors("--for"):
        end = first + parse_duration(for_)
    if fleet and without_fleets:
        raise CommandFailed("--fleet and --without-fleets exclude each other", where="--fleet", status=Exit.USAGE)
    tenant = session.app.tenant or session.get("key").get("tenant")
    if not tenant:
        raise CommandFailed("an admin key belongs to no tenant", where="--tenant", advice="Name one with --tenant.", status=Exit.USAGE)
    options = ExportOptions(first, end, limit, () if without_fleets else fleet)
    admin = CommandSession(replace(session.app, tenant=None))
    try:
        found = SnapshotExporter(session, admin, read_if_allowed, tenant, options).read()
    except BadSnapshot as wrong:
        raise CommandFailed(str(wrong), advice="tocsin what-if export --help lists the options.", status=Exit.USAGE) from None
    finally:
        admin.close()
    try:
        file.write_text(found.text(), encoding="utf-8")
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be written: {wrong.strerror}", where=str(file), status=Exit.USAGE) from None
    counts = {
        "events": found.total,
        "channels": len(found.channels),
        "schedules": len(found.schedules),
        "fleets": len(found.fleets),
        "nodes": sum(len(each.nodes) for each in found.fleets),
    }
    if session.json:
        session.emit({"file": str(file), "from": _local(first), "to": _local(end), **counts, "notes": list(found.notes)})
        return
    for note in found.notes:
        session.screen.line(note)
    parts = ", ".join(count_of(number, name.removesuffix("s")) for name, number in counts.items())
    session.screen.line(f"{parts} written to {file}")


def _local(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000).astimezone().isoformat(timespec="seconds")
