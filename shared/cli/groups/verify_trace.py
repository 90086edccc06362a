"""`tocsin verify-trace`: replay what the protocols did in production through the rules that the model checker uses. Needs no app."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from ...core.clock import to_text
from ...core.readable import count_of
from ..commands import JsonOption
from ..exits import Exit
from ..failures import CommandFailed
from ..help import add_command
from ..terminal.documents import to_json
from ..terminal.output import Activity, Screen

if TYPE_CHECKING:
    from ...extras.verification.lines import TraceReading
    from ...extras.verification.spool import TraceSpool
    from ...extras.verification.verify import IllegalStep, TraceVerdict

_GZIP: Final = b"\x1f\x8b"
_REPORT_EVERY: Final = 16 * 1024 * 1024
"""Bytes of input between two changes of the line that shows the progress."""
_ADVICE: Final = "Set TOCSIN_TRACE to all or sampled:SHARE on app and servers, and their log level to INFO."
_KINDS: Final = {"gate": "shards", "lease": "fleets", "turn": "turns of fleets"}
_ONE: Final = {"gate": "shard", "lease": "fleet", "turn": "turns of fleet"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "verify-trace", verify_trace, no_args_is_help=True)


def verify_trace(
    files: Annotated[list[Path], typer.Argument(help="Log files or exports, also compressed with gzip; - is standard input.")],
    json: JsonOption = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of illegal steps to show.")] = 3,
) -> None:
    """Verify what the protocols did: name the first illegal step of each shard and fleet in a trace, with its neighbours.

    The trace is what app and servers log with TOCSIN_TRACE set to all or sampled:SHARE. Give the files of all processes at once, in any
    order. Log files, JSON and CSV exports are read; other lines are passed over.

    Exit code: 0 all steps are legal, 1 a step is illegal, 2 a file or a line cannot be read, or no file has a trace.

    Examples:
        tocsin verify-trace app.log servers/*.log.gz
        tocsin verify-trace -
        tocsin verify-trace export.json --json
    """
    from ...extras.verification.lines import TraceReading
    from ...extras.verification.spool import TraceSpool
    from ...extras.verification.verify import verify_spool

    activity = Activity("Reading")
    with activity.during(), TraceSpool() as spool:
        reading = TraceReading(put=spool.add)
        silent = [path for path in files if not _read(reading, spool, path, activity)]
        verdict = verify_spool(spool, lambda done, of: activity.update(f"Verifying: part {done + 1} of {of}"))
        lines = spool.lines
    activity.hide()
    if not lines and not reading.newer and not reading.unreadable:
        raise CommandFailed(
            f"no trace line in {count_of(reading.lines, 'line')}",
            where=" ".join(map(str, files)),
            advice=_ADVICE,
            status=Exit.USAGE,
        )
    if json:
        typer.echo(to_json(_document(verdict, reading, limit) | {"without_trace": [str(path) for path in silent]}))
    else:
        screen = Screen()
        _show(screen, verdict, reading, limit)
        if silent:
            screen.line(f"No trace in {', '.join(map(str, silent))}: {_ADVICE}")
        typer.echo(screen.text(), nl=False)
    if verdict.illegal:
        raise typer.Exit(Exit.FAILED)
    if reading.unreadable or reading.newer:
        raise typer.Exit(Exit.USAGE)


def _read(reading: TraceReading, spool: TraceSpool, path: Path, activity: Activity) -> bool:
    """Read a file, and return whether it has a trace."""
    from ...extras.verification.lines import LONGEST_DOCUMENT, read_lines

    def found() -> int:
        return spool.lines + reading.newer + reading.unreadable + reading.truncated

    reported, before = 0, found()
    try:
        with _opened(path) as file:
            for done in read_lines(reading, iter(lambda: file.readline(LONGEST_DOCUMENT + 1), b"")):
                if done - reported >= _REPORT_EVERY:
                    reported = done
                    activity.update(f"Reading {path}: {done >> 20:,} MB")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandFailed(f"the file cannot be read: {reason}", where=str(path), status=Exit.USAGE) from None
    return found() > before


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        if file.peek(2)[:2] == _GZIP:
            with gzip.open(file) as plain:
                yield plain  # type: ignore[misc]
        else:
            yield file


def _document(verdict: TraceVerdict, reading: TraceReading, limit: int) -> dict[str, Any]:
    found = verdict.document() | {"truncated": reading.truncated, "unreadable": reading.unreadable, "newer": reading.newer}
    return found | {"illegal": [_step(step) for step in verdict.illegal[:limit]], "illegal_steps": len(verdict.illegal)}


def _step(step: IllegalStep) -> dict[str, Any]:
    names = ("kind", "partition", "rules", "step", "before", "after", "gaps")
    return {"at": to_text(step.at), **{name: getattr(step, name) for name in names}}


def _show(screen: Screen, verdict: TraceVerdict, reading: TraceReading, limit: int) -> None:
    total = count_of(sum(verdict.steps.values()), "step")
    if verdict.illegal:
        number = len(verdict.illegal)
        where = "1 shard or fleet has" if number == 1 else f"{number:,} shards or fleets have"
        screen.line(f"ILLEGAL: {where} an illegal step, in {total} of {count_of(verdict.processes, 'process', 'processes')}.", style="red")
    else:
        screen.line(f"legal: {total} of {count_of(verdict.processes, 'process', 'processes')} are as the protocols allow.", style="green")
    screen.gap()
    rows: Sequence[Sequence[Any]] = [(_KINDS[kind], verdict.partitions[kind], steps) for kind, steps in verdict.steps.items()]
    screen.table(("of", "number", "steps"), rows)
    for line in _notes(verdict, reading):
        screen.line(line)
    for step in verdict.illegal[:limit]:
        screen.gap()
        screen.line(f"{_ONE[step.kind]} {step.partition}, {to_text(step.at)}:", style="bold")
        for rule in step.rules:
            screen.line(f"  {rule}", style="red")
        for text in step.before:
            screen.line(f"    before   {text}")
        screen.line(f"    ILLEGAL  {step.step}", style="red")
        for text in step.after:
            screen.line(f"    after    {text}")
        if step.gaps:
            screen.line(f"    {count_of(step.gaps, 'earlier place')} of it where the trace has a gap")
    if len(verdict.illegal) > limit:
        screen.gap()
        screen.line(f"{len(verdict.illegal) - limit:,} more: --limit shows them.")


def _notes(verdict: TraceVerdict, reading: TraceReading) -> Iterator[str]:
    """Yield sentences about what the trace lacks."""
    if verdict.inferred:
        yield f"{count_of(verdict.inferred, 'transaction')} whose answer was lost: later readings show that they were applied."
    if verdict.gaps:
        yield f"{count_of(verdict.gaps, 'gap')}: a step before is not in the trace, and what it did is not judged."
    if verdict.missing or reading.truncated:
        yield f"{count_of(verdict.missing + reading.truncated, 'line')} missing, by the numbers of their processes, or cut off."
    if reading.unreadable:
        yield f"{count_of(reading.unreadable, 'trace line')} cannot be read: they are damaged, or cut by the log."
    if reading.newer:
        yield f"{count_of(reading.newer, 'trace line')} of a later version: use the command of that release."
