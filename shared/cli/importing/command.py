"""What `tocsin events import` does."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from ...client.model import BatchLine
from ..connection_options import Connection
from ..exits import Exit
from ..failures import CommandFailed
from ..terminal.documents import to_json
from ..terminal.output import console
from . import progress as kept
from .progress import InUse, OtherImport, Progress
from .reading import BadHeader, Format, Part, parts
from .sending import Importer, send_all

ROOM: Final = 4 * 1024 * 1024
"""Bytes of events in a part."""


@dataclass(frozen=True, slots=True)
class Import:
    """What was asked for. source None: standard input, which cannot be resumed. batch: events. in_flight: batches."""

    app: Connection
    source: Path | None
    form: Format
    rejects: Path
    progress: Path
    ids: bool = True
    batch: int = 2000
    in_flight: int = 4
    restart: bool = False
    check: bool = False

    @property
    def resumable(self) -> bool:
        """Whether it is kept how far it is."""
        return self.source is not None and not self.check


def run_import(plan: Import) -> Progress:
    """Import the file, from where it was stopped; how it went. Raises `CommandFailed`."""
    try:
        with contextlib.ExitStack() as stack:
            file = sys.stdin.buffer if plan.source is None else stack.enter_context(plan.source.open("rb"))
            if plan.source is not None and not file.seekable():
                advice = f"Give - as the file, and what it is: --format {plan.form} - < {plan.source}"
                raise CommandFailed("this is a pipe, not a file", where=_name(plan), advice=advice, status=Exit.USAGE)
            if plan.resumable:
                stack.enter_context(kept.alone(plan.progress))
            return _run(plan, file)
    except InUse:
        advice = "Let it end, or stop it; one of the same file to another app takes its own --progress and --rejects."
        raise CommandFailed("another import keeps its progress there", where=str(plan.progress), advice=advice, status=Exit.USAGE) from None
    except BadHeader as wrong:
        raise CommandFailed(str(wrong), where=_name(plan), advice="docs/command.md tells the columns.", status=Exit.USAGE) from None
    except OSError as wrong:
        where = str(wrong.filename or _name(plan))
        raise CommandFailed(f"a file cannot be used: {wrong.strerror}", where=where, status=Exit.USAGE) from None


def _name(plan: Import) -> str:
    return "standard input" if plan.source is None else str(plan.source)


def _run(plan: Import, file: BinaryIO) -> Progress:
    begun = _begun(plan, file)
    if begun.offset:
        file.seek(begun.offset)
    found = parts(file, plan.form, ids=plan.ids, most=plan.batch, room=ROOM, offset=begun.offset, number=begun.line)
    if plan.resumable:
        # Before anything is sent: where it cannot be kept, nothing is done.
        kept.save(plan.progress, begun)
    settling = _Settling(plan, begun)
    try:
        _carry_out(plan, settling, found, file)
    except OSError as wrong:
        title = f"A file cannot be written: {wrong.strerror}"
        raise CommandFailed(title, where=str(wrong.filename or plan.rejects), advice="The same command goes on from there.") from None
    except KeyboardInterrupt:
        if plan.resumable and settling.now.line:
            print(f"tocsin: stopped after line {settling.now.line:,}: the same command goes on from there", file=sys.stderr)
        raise
    finally:
        if plan.resumable and (settling.over or not settling.now.line):
            plan.progress.unlink(missing_ok=True)
    return settling.now


def _carry_out(plan: Import, settling: _Settling, found: Iterator[Part], file: BinaryIO) -> None:
    with settling, _bar(plan, file) as tell:

        def settle(part: Part, results: tuple[BatchLine, ...]) -> None:
            tell(settling.settle(part, results))

        tell(settling.now)
        if plan.check:
            for part in found:
                settle(part, tuple(BatchLine(index=line.at, status=201) for line in part.events))
        else:
            asyncio.run(_send(plan, found, settle))
        settling.over = True


async def _send(plan: Import, found: Iterator[Part], settle: Callable[[Part, tuple[BatchLine, ...]], None]) -> None:
    app = plan.app
    async with Importer(app.url, app.key, tenant=app.tenant) as importer:
        await send_all(importer, found, settle, in_flight=plan.in_flight)


def _begun(plan: Import, file: BinaryIO) -> Progress:
    """Where to begin."""
    head, size = kept.head_of(file) if plan.source is not None else ("", 0)
    fresh = Progress(plan.app.url, plan.app.tenant or "", plan.form, plan.ids, head, size)
    if plan.source is None or plan.restart or plan.check:
        return fresh
    advice = "Give --restart to begin anew, or --progress another file."
    try:
        found = kept.load(plan.progress)
        if found is not None and not found.goes_on(fresh, file):
            raise OtherImport("it is of another file, app or way to import")
    except OtherImport as other:
        raise CommandFailed(f"the progress cannot be used: {other}", where=str(plan.progress), advice=advice, status=Exit.USAGE) from None
    return fresh if found is None else replace(found, head=fresh.head, head_bytes=fresh.head_bytes)


class _Settling:
    """Keeps rejects and progress, in this order: rejects of a part whose progress was not kept are cut off by the next run."""

    def __init__(self, plan: Import, begun: Progress) -> None:
        self._plan, self.now, self.over = plan, begun, False
        self._rejects: BinaryIO | None = None
        # Beside the one that is read on: for what stands before the place it goes on from.
        self._source = plan.source.open("rb") if plan.source is not None and plan.resumable else None

    def __enter__(self) -> _Settling:
        if self.now.rejects_bytes:
            file = self._open()
            file.truncate(min(self.now.rejects_bytes, file.tell()))
        elif self._plan.rejects.is_file() and not self._plan.rejects.is_symlink():
            # Those of an import before. What is no file, as /dev/null, stays.
            self._plan.rejects.unlink()
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._rejects, self._source):
            if file is not None:
                file.close()

    def _open(self) -> BinaryIO:
        if self._rejects is None:
            self._rejects = self._plan.rejects.open("ab")
        return self._rejects

    def settle(self, part: Part, results: tuple[BatchLine, ...]) -> Progress:
        """A part is done."""
        texts = {line.at: line.text for line in part.events}
        lines: list[tuple[int, dict[str, Any]]] = [(bad.number, {"why": bad.why, "text": bad.text}) for bad in part.bad]
        accepted = known = 0
        for line in results:
            if line.ok:
                known += line.status == 200
                accepted += line.status != 200
            else:
                lines.append((line.index, {"why": _why(line.problem or {}), "text": texts[line.index].decode(errors="replace")}))
        for number, told in sorted(lines, key=lambda each: each[0]):
            self._open().write(f"{to_json({'line': number, **told})}\n".encode(errors="replace"))
        length = self.now.rejects_bytes
        if lines:
            self._open().flush()
            length = self._open().tell()
        tail = kept.tail_of(self._source, part.offset) if self._source is not None else ""
        self.now = self.now.after(
            part.offset, part.number, accepted=accepted, known=known, rejected=len(lines), rejects_bytes=length, tail=tail
        )
        if self._source is not None:
            kept.save(self._plan.progress, self.now)
        return self.now


def _why(problem: Any) -> str:
    faults = "; ".join(f"{fault.get('pointer')}: {fault.get('detail')}" for fault in problem.get("errors") or [])
    detail = problem.get("detail", "")
    return f"{problem.get('title', 'refused')}: {detail}" + (f" ({faults})" if faults not in detail else "")


@contextlib.contextmanager
def _bar(plan: Import, file: BinaryIO) -> Iterator[Callable[[Progress], None]]:
    """A bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    size = None if plan.source is None else plan.source.stat().st_size
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Bar(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("", total=size)

        def tell(now: Progress) -> None:
            done = now.accepted + now.known
            bar.update(task, completed=now.offset, description=f"{done:,} events, {now.rejected:,} rejected")

        yield tell
