"""Run `tocsin events import`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from ...client.model import BatchLine
from ...core.readable import count_of
from ..connections import Connection
from ..exits import Exit
from ..failures import CommandFailed
from ..terminal.documents import to_json
from ..terminal.output import console
from . import progress as kept
from .progress import ImportProgress, OtherImport, ProgressInUse
from .reading import BadHeader, FileFormat, FilePart, RejectedLine, read_parts
from .sending import Importer, send_all

MAX_PART_BYTES: Final = 4 * 1024 * 1024
"""Size of the events in a part, in bytes."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The options of an import. source: None for standard input, which cannot be resumed. batch: events. in_flight: batches."""

    app: Connection
    source: Path | None
    form: FileFormat
    rejects: Path
    progress: Path
    ids: bool = True
    batch: int = 2000
    in_flight: int = 4
    restart: bool = False
    check: bool = False
    unknown: Literal["ask", "send", "skip"] = "ask"
    """The treatment of events that must not be sent twice and that an interrupted import may have sent: refuse, send again, leave out."""

    @property
    def resumable(self) -> bool:
        """True if progress is stored."""
        return self.source is not None and not self.check


def run_import(plan: ImportPlan) -> ImportProgress:
    """Import the file, or resume its import, and return the final progress. Raises `CommandFailed`."""
    try:
        with contextlib.ExitStack() as stack:
            file = sys.stdin.buffer if plan.source is None else stack.enter_context(plan.source.open("rb"))
            if plan.source is not None and not file.seekable():
                advice = f"Read it from standard input: --format {plan.form} - < {plan.source}"
                raise CommandFailed("this is a pipe, not a file", where=_name(plan), advice=advice, status=Exit.USAGE)
            if plan.resumable:
                stack.enter_context(kept.exclusive_progress(plan.progress))
            return _run(plan, file)
    except ProgressInUse:
        advice = "Wait for it or stop it. To import the file into another app, give other --progress and --rejects files."
        raise CommandFailed("another import uses this progress file", where=str(plan.progress), advice=advice, status=Exit.USAGE) from None
    except BadHeader as wrong:
        advice = "Example of a first line: due,id,payload.order. See docs/reference/command.md."
        raise CommandFailed(str(wrong), where=_name(plan), advice=advice, status=Exit.USAGE) from None
    except OSError as wrong:
        where = str(wrong.filename or _name(plan))
        advice = "Check the path, its folder, and the access rights of both."
        raise CommandFailed(f"a file cannot be used: {wrong.strerror}", where=where, advice=advice, status=Exit.USAGE) from None


def _name(plan: ImportPlan) -> str:
    return "standard input" if plan.source is None else str(plan.source)


def _run(plan: ImportPlan, file: BinaryIO) -> ImportProgress:
    begun = _starting_progress(plan, file)
    if begun.offset:
        file.seek(begun.offset)
    found = read_parts(file, plan.form, ids=plan.ids, most=plan.batch, room=MAX_PART_BYTES, offset=begun.offset, number=begun.line)
    if begun.doubtful_events:
        if plan.unknown == "ask":
            raise _doubtful(plan, begun)
        if plan.unknown == "skip":
            found = _without_doubtful(found, begun)
        begun = replace(begun, in_doubt=())
    if plan.resumable:
        # Stored before anything is sent: if progress cannot be stored, nothing is done.
        kept.save(plan.progress, begun)
    settling = _Settlement(plan, begun)
    try:
        _carry_out(plan, settling, found, file)
    except OSError as wrong:
        title = f"A file cannot be written: {wrong.strerror}"
        advice = "Make room or correct the path, then run the same command again to resume."
        raise CommandFailed(title, where=str(wrong.filename or plan.rejects), advice=advice) from None
    except KeyboardInterrupt:
        if plan.resumable and settling.now.line:
            print(f"tocsin: stopped after line {settling.now.line:,}; run the same command again to resume", file=sys.stderr)
        raise
    finally:
        if plan.resumable and (settling.over or not settling.now.line):
            plan.progress.unlink(missing_ok=True)
    return settling.now


def _carry_out(plan: ImportPlan, settling: _Settlement, found: Iterator[FilePart], file: BinaryIO) -> None:
    with settling, _bar(plan, file) as show_progress:

        def settle(part: FilePart, results: tuple[BatchLine, ...]) -> None:
            show_progress(settling.settle(part, results))

        show_progress(settling.now)
        if plan.check:
            for part in found:
                settle(part, tuple(BatchLine(index=line.at, status=201) for line in part.events))
        else:
            asyncio.run(_send(plan, found, settle, settling.note_sending))
        settling.over = True


async def _send(
    plan: ImportPlan,
    found: Iterator[FilePart],
    settle: Callable[[FilePart, tuple[BatchLine, ...]], None],
    note_sending: Callable[[FilePart, bool], None],
) -> None:
    app = plan.app
    async with Importer(app.url, app.key, tenant=app.tenant, allow_plain_http=app.allow_plain_http) as importer:
        await send_all(importer, found, settle, note_sending=note_sending, in_flight=plan.in_flight)


def _doubtful(plan: ImportPlan, begun: ImportProgress) -> CommandFailed:
    lines = ", ".join(f"{first:,} to {last:,}" for first, last, _ in begun.in_doubt)
    most = f"up to {count_of(begun.doubtful_events, 'event')}"
    title = f"lines {lines} were being sent when the import ended: {most} without an id may be stored"
    skip = f"--unknown skip leaves them out and lists them in {plan.rejects}"
    advice = f"{skip}; --unknown send sends them again, so that {most} may be stored twice."
    return CommandFailed(title, where=str(plan.progress), advice=advice, status=Exit.USAGE)


def _without_doubtful(parts: Iterator[FilePart], begun: ImportProgress) -> Iterator[FilePart]:
    """Yield the parts, with the events that may be stored among the rejected lines."""
    for part in parts:
        doubtful = [event for event in part.events if begun.is_doubtful(event.at) and not event.repeatable]
        others = [event for event in part.events if event.repeatable or not begun.is_doubtful(event.at)]
        why = "sent before the import was interrupted; it is not known whether the event is stored"
        rejected = [RejectedLine(each.at, each.text.decode(errors="replace"), why) for each in doubtful]
        yield part._replace(events=others, rejected=sorted([*part.rejected, *rejected]))


def _starting_progress(plan: ImportPlan, file: BinaryIO) -> ImportProgress:
    """Return the progress to begin with: the stored one, or that of a new import."""
    head, size = kept.head_of(file) if plan.source is not None else ("", 0)
    fresh = ImportProgress(plan.app.url, plan.app.tenant or "", plan.form, plan.ids, head, size)
    if plan.source is None or plan.restart or plan.check:
        return fresh
    advice = "Give --restart to begin at the first line, or --progress with another file."
    try:
        found = kept.load(plan.progress)
        if found is not None and not found.is_continuation(fresh, file):
            raise OtherImport("it belongs to another file, app or import options")
    except OtherImport as other:
        raise CommandFailed(f"the progress cannot be used: {other}", where=str(plan.progress), advice=advice, status=Exit.USAGE) from None
    return fresh if found is None else replace(found, head=fresh.head, head_bytes=fresh.head_bytes)


class _Settlement:
    """Writes rejects, then progress. If the progress of a part was not written, the next run truncates that part's rejects."""

    def __init__(self, plan: ImportPlan, begun: ImportProgress) -> None:
        self._plan, self.now, self.over = plan, begun, False
        self._rejects: BinaryIO | None = None
        # A second handle, to read the bytes before the resume position while the first handle reads on.
        self._source = plan.source.open("rb") if plan.source is not None and plan.resumable else None

    def __enter__(self) -> _Settlement:
        if self.now.rejects_bytes:
            file = self._open()
            file.truncate(min(self.now.rejects_bytes, file.tell()))
        elif self._plan.rejects.is_file() and not self._plan.rejects.is_symlink():
            # The rejects of an earlier import. A path that is not a plain file, such as /dev/null, stays.
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

    def note_sending(self, part: FilePart, sending: bool) -> None:
        """Store that events of the part must not be sent again, or that none of them was sent."""
        once = [event.at for event in part.events if not event.repeatable]
        if not once or self._source is None:
            return
        entry = (once[0], once[-1], len(once))
        others = tuple(each for each in self.now.in_doubt if each != entry)
        self.now = replace(self.now, in_doubt=(*others, entry) if sending else others)
        kept.save(self._plan.progress, self.now)

    def settle(self, part: FilePart, results: tuple[BatchLine, ...]) -> ImportProgress:
        """Record the results of a part and return the new progress."""
        texts = {line.at: line.text for line in part.events}
        rejected: list[tuple[int, dict[str, Any]]] = [(each.number, {"why": each.why, "text": each.text}) for each in part.rejected]
        accepted = known = 0
        for line in results:
            if line.ok:
                known += line.status == 200
                accepted += line.status != 200
            else:
                text = texts[line.index].decode(errors="replace")
                rejected.append((line.index, {"why": _rejection_reason(line.problem or {}), "text": text}))
        for number, fields in sorted(rejected, key=lambda each: each[0]):
            self._open().write(f"{to_json({'line': number, **fields})}\n".encode(errors="replace"))
        length = self.now.rejects_bytes
        if rejected:
            self._open().flush()
            length = self._open().tell()
        tail = kept.tail_of(self._source, part.offset) if self._source is not None else ""
        self.now = self.now.after(
            part.offset, part.number, accepted=accepted, known=known, rejected=len(rejected), rejects_bytes=length, tail=tail
        )
        self.now = replace(self.now, in_doubt=tuple(each for each in self.now.in_doubt if each[1] > part.number))
        if self._source is not None:
            kept.save(self._plan.progress, self.now)
        return self.now


def _rejection_reason(problem: Any) -> str:
    faults = "; ".join(f"{fault.get('pointer')}: {fault.get('detail')}" for fault in problem.get("errors") or [])
    detail = problem.get("detail", "")
    return f"{problem.get('title', 'refused')}: {detail}" + (f" ({faults})" if faults not in detail else "")


@contextlib.contextmanager
def _bar(plan: ImportPlan, file: BinaryIO) -> Iterator[Callable[[ImportProgress], None]]:
    """Show a progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    size = None if plan.source is None else plan.source.stat().st_size
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Bar(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("", total=size)

        def show(now: ImportProgress) -> None:
            done = now.accepted + now.known
            bar.update(task, completed=now.offset, description=f"{count_of(done, 'event')}, {now.rejected:,} rejected")

        yield show
