"""`tocsin what-if run`: play an export with a change and without it, and show both."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ...whatif.changes import OPTIONS, BadChange, Change, parse_changes
from ...whatif.snapshot import MAX_BYTES, BadSnapshot, Snapshot, parse_snapshot
from ..commands import JsonOption
from ..declared.yaml_text import parse_yaml
from ..exits import Exit
from ..failures import CommandFailed
from ..session import usage_errors
from ..terminal.documents import to_json
from ..terminal.output import Screen, console

if TYPE_CHECKING:
    from ...whatif.play import ReportProgress

_FILE_HELP: Final = "File that tocsin what-if export has written."
_FAIL_IF_HELP: Final = "Exit with code 1 if the run with the changes meets this condition, such as 'dead>0'."
_NEEDED: Final = 'The twin is the whole service: pip install "$(ls dist/tocsin-*.whl)[cli,testing]" (`make wheel` builds it).'
MAX_INSTANCES: Final = 16


def _change(help: str, name: str) -> Any:
    return typer.Option(f"--{name}", metavar="CHANGE", help=f"{help}, such as {OPTIONS[name]}.", show_default=False)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=_FILE_HELP, show_default=False)],
    slow: Annotated[list[str] | None, _change("A receiver answers later", "slow")] = None,
    fail: Annotated[list[str] | None, _change("A share of a receiver's attempts fails", "fail")] = None,
    down: Annotated[list[str] | None, _change("Each attempt at a channel fails", "down")] = None,
    rate: Annotated[list[str] | None, _change("A channel gets another limit", "rate")] = None,
    add_events: Annotated[list[str] | None, _change("More events are due", "add-events")] = None,
    maintenance: Annotated[list[str] | None, _change("A fault domain has maintenance, announced 15 min before", "maintenance")] = None,
    outage: Annotated[list[str] | None, _change("A fault domain stands still without notice", "outage")] = None,
    remove_servers: Annotated[list[str] | None, _change("Servers leave", "remove-servers")] = None,
    changes: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of changes: lists by the names above.")] = None,
    fail_if: Annotated[list[str] | None, typer.Option(metavar="CONDITION", help=_FAIL_IF_HELP)] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, metavar="N", help="Seed of random numbers.")] = 1,
    instances: Annotated[int, typer.Option(min=1, max=MAX_INSTANCES, metavar="N", help="Instances of the app, of one core each.")] = 1,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw both runs as an SVG file.")] = None,
    json: JsonOption = False,
) -> None:
    """Play an export on virtual time, once as it is and once with the changes, and show both.

    Each change may be given several times. A time is a time of day of this machine, +10m after the beginning of the window, or an ISO time;
    a span is TIME-TIME or TIME/DURATION.
    The same file, changes and seed give the same figures. Nothing is sent to the app.

    Examples:
        tocsin what-if run monday.json --slow orders=2s@12:00
        tocsin what-if run monday.json --maintenance 2@14:00/10m --remove-servers 3@13:00 --chart monday.svg
        tocsin what-if run monday.json --down orders@12:00/10m --fail-if 'late_p99>15m' --fail-if 'dead>0'
    """
    given = {
        "slow": slow,
        "fail": fail,
        "down": down,
        "rate": rate,
        "add-events": add_events,
        "maintenance": maintenance,
        "outage": outage,
        "remove-servers": remove_servers,
    }
    snapshot = _read(file)
    wanted = _changes({name: texts for name, texts in given.items() if texts}, changes, snapshot)
    try:
        from ...whatif.chart import draw
        from ...whatif.comparison import FailCondition, as_document, compare, figure_text, parse_condition, series_of
        from ...whatif.play import play
    except ImportError as missing:
        raise CommandFailed(f"a library of the service is missing: {missing}", advice=_NEEDED) from None
    try:
        conditions: list[FailCondition] = [parse_condition(text) for text in fail_if or ()]
    except BadChange as wrong:
        raise CommandFailed(str(wrong), where="--fail-if", status=Exit.USAGE) from None
    with _progress() as progress, usage_errors(str(file)):
        unchanged = play(snapshot, seed=seed, instances=instances, progress=lambda share: progress(share / 2))
        changed = unchanged
        if wanted:
            changed = play(snapshot, wanted, seed=seed, instances=instances, progress=lambda share: progress(0.5 + share / 2))
    lines = compare(unchanged, changed)
    met = [(condition, line) for condition in conditions for line in condition.met_by(lines)]
    if chart is not None:
        _write(chart, draw(series_of(unchanged), series_of(changed), f"{file.name}: unchanged, and with the change"))
    if json:
        document = {"seed": seed, "instances": instances, "notes": list(snapshot.notes), **as_document(lines, unchanged, changed)}
        typer.echo(to_json({**document, "conditions_met": [condition.text for condition, _ in met]}))
    else:
        screen = Screen()
        rows = [
            (
                line.name,
                figure_text(line.unchanged, line.unit),
                figure_text(line.changed, line.unit),
                figure_text(line.difference, line.unit, signed=True),
            )
            for line in lines
        ]
        screen.table(("figure", "unchanged", "changed", "difference"), rows)
        for note in snapshot.notes:
            screen.line(note)
        typer.echo(screen.text(), nl=False)
    for condition, line in met:
        print(f"{condition.text}: {line.name} is {figure_text(line.changed, line.unit)}", file=sys.stderr)
    if met:
        raise typer.Exit(Exit.FAILED)


def _read(file: Path) -> Snapshot:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise BadSnapshot(f"the file has more than {MAX_BYTES // 2**20} MiB")
        return parse_snapshot(file.read_text(encoding="utf-8"))
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=str(file), status=Exit.USAGE) from None
    except (BadSnapshot, UnicodeDecodeError) as wrong:
        advice = "Write one with tocsin what-if export FILE."
        raise CommandFailed(str(wrong), where=str(file), advice=advice, status=Exit.USAGE) from None


def _changes(given: Mapping[str, Sequence[str]], file: Path | None, snapshot: Snapshot) -> tuple[Change, ...]:
    """Return the changes of the options and of the file."""
    try:
        found = parse_changes(given, snapshot)
        if file is None:
            return found
        listed = parse_yaml(file.read_bytes())
        if not isinstance(listed, dict) or not all(isinstance(each, list) for each in listed.values()):
            raise BadChange('the file must hold lists by name, such as `slow: ["orders=2s@12:00"]`')
        return found + parse_changes(listed, snapshot)
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=str(file), status=Exit.USAGE) from None
    except ValueError as wrong:
        raise CommandFailed(str(wrong), advice="tocsin what-if run --help shows each change.", status=Exit.USAGE) from None


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as wrong:
        raise CommandFailed(f"the file cannot be written: {wrong.strerror}", where=str(file), status=Exit.USAGE) from None


@contextlib.contextmanager
def _progress() -> Iterator[ReportProgress]:
    """Show a bar on standard error, if that is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda share: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("two runs on virtual time"), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeElapsedColumn())
    with Progress(*columns, console=console(error=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda share: progress.update(task, completed=share)
