"""`tocsin apply`: make the app have what a file declares."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...core.errors import TocsinError
from ...core.readable import count_of
from ..commands import Yes, add_commands
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from ..session import CommandSession
from ..terminal.output import console
from .plan import Step, carry_out, make_steps
from .resources import Address, parse_declared, read_parts, read_tenants
from .yaml_text import parse_yaml

_DONE: Final = {"create": "created", "change": "changed", "keep": "unchanged", "remove": "removed"}
_STATES: Final = ("scheduled", "firing", "retrying")
MOST_COUNTED: Final = 1000
"""Open events of a channel that are counted; more are shown as "1,000 or more"."""
_FILE_HELP: Final = "The YAML file; - for standard input."
_PRUNE_HELP: Final = "Remove channels, calendars, fleets and schedules of the file's tenants that the file does not declare."
_TENANTS_HELP: Final = "With --prune: remove tenants that the file does not declare, with their keys, too."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"apply": apply}, tenant=False)


def apply(
    session: CommandSession,
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help=_FILE_HELP)] = "tocsin.yaml",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help=_PRUNE_HELP)] = False,
    prune_tenants: Annotated[bool, typer.Option("--prune-tenants", help=_TENANTS_HELP)] = False,
    yes: Yes = False,
) -> None:
    """Create and change tenants, channels, calendars, fleets and schedules as a file declares them. Needs an admin key.

    A second run changes nothing. Nothing is removed without --prune, which lists what it removes and asks. Texts such as ${env:NAME} take
    the value of a variable; one that is not set keeps what is stored.

    Examples:
        tocsin apply -f tocsin.yaml --dry-run
        tocsin apply -f tocsin.yaml
        tocsin apply -f tocsin.yaml --prune
    """
    if prune_tenants and not prune:
        raise CommandFailed("--prune-tenants needs --prune", where="--prune-tenants", advice="Add --prune.", status=Exit.USAGE)
    declared = _read(file)
    tenants = read_tenants(session)
    known = [each.tenant for each in tenants if each in declared]
    stored = {**{each: tenants[each] for each in tenants if each in declared}, **read_parts(session, known)}
    with _bar("compared", len(declared)) as progress:
        steps = make_steps(session, declared, stored, os.environ, progress)
    extra = sorted((each for each in stored if each not in declared), key=lambda each: each.order, reverse=True)
    if prune_tenants:
        extra += [each for each in tenants if each not in declared]
    removed = [Step(each, "remove", note=_open_events(session, each)) for each in extra] if prune else []
    _carry_out(session, steps, removed, dry_run=dry_run, yes=yes, left=0 if prune else len(extra))


def _read(file: str) -> dict[Address, dict[str, Any]]:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return parse_declared(parse_yaml(raw))
    except OSError as wrong:
        advice = "Name it with -f FILE. tocsin export writes one."
        raise CommandFailed(f"the file cannot be read: {wrong.strerror}", where=file, advice=advice, status=Exit.USAGE) from None
    except ValueError as wrong:
        raise CommandFailed(f"the file is not valid: {wrong}", where=file, status=Exit.USAGE) from None


def _open_events(session: CommandSession, address: Address) -> str:
    """Return what hangs on a resource that would be removed."""
    if address.kind == "tenant":
        keys = sum(1 for _ in session.items(f"{address.path}/keys"))
        events = session.get("stats", tenant=address.tenant)["open"]
        return f"{count_of(keys, 'key')} and {count_of(events, 'open event')}"
    if address.kind != "channel":
        return ""
    found = 0
    for state in _STATES:
        for _ in session.items("events", tenant=address.tenant, channel=address.name, state=state, limit=MOST_COUNTED - found):
            found += 1
    return f"{found:,} or more open events" if found >= MOST_COUNTED else count_of(found, "open event")


def _carry_out(session: CommandSession, steps: Sequence[Step], removed: Sequence[Step], *, dry_run: bool, yes: bool, left: int) -> None:
    if dry_run:
        for step in [*steps, *removed]:
            _show(session, step, step.action)
        _summarise(session, [*steps, *removed], left, dry_run=True)
        return
    if removed and not yes:
        for step in removed:
            typer.echo(f"remove {step.address}{f': {step.note}' if step.note else ''}", err=True)
        session.confirm(f"Remove {count_of(len(removed), 'resource')}; open events become dead letters", yes)
    done: list[Step] = [step for step in steps if step.action == "keep"]
    todo = [*(step for step in steps if step.action != "keep"), *removed]
    try:
        with _bar("applied", len(todo)) as progress:

            def note(step: Step) -> None:
                done.append(step)
                _show(session, step, _DONE[step.action])
                progress()

            carry_out(session, todo, note)
    except TocsinError as error:
        failed = to_command_failure(error)
        count = len(done) - (len(steps) + len(removed) - len(todo))
        title = f"{failed.title}\n{count} of {count_of(len(todo), 'change')} are done; a further run goes on from here"
        raise CommandFailed(title, where=failed.where, advice=failed.advice, status=failed.status) from error
    _summarise(session, done, left, dry_run=False)


def _show(session: CommandSession, step: Step, verb: str) -> None:
    if session.json:
        address = step.address
        document: dict[str, Any] = {"action": step.action, "kind": address.kind, "tenant": address.tenant, "name": address.name}
        document |= {"changes": [each._asdict() for each in step.changes]} if step.changes else {}
        session.emit(document | ({"note": step.note} if step.note else {}))
    elif step.action != "keep":
        note = step.note or ("" if step.checked else "checked once its tenant or channel exists" if verb == step.action else "")
        session.screen.line(f"{verb:<8}{step.address}{f': {note}' if note else ''}")
        for change in step.changes if step.action == "change" else ():
            session.screen.line(f"          {change.text()}")
        if verb == "created" and step.address.kind == "channel" and step.body.get("type") in ("http", "fleet"):
            session.screen.line(f"          its signing secret: tocsin tenants channels rotate {step.address.tenant} {step.address.name}")


def _summarise(session: CommandSession, steps: Sequence[Step], left: int, *, dry_run: bool) -> None:
    if session.json:
        return
    counts: Mapping[str, int] = {action: sum(step.action == action for step in steps) for action in _DONE}
    parts = ", ".join(f"{count:,} {_DONE[action]}" for action, count in counts.items())
    session.screen.line(f"{parts} (a dry run: nothing was changed)" if dry_run else parts)
    if left:
        session.screen.line(f"{count_of(left, 'stored resource')} not in the file: kept; --prune removes such resources", style="dim")


@contextlib.contextmanager
def _bar(verb: str, total: int) -> Iterator[Callable[[], object]]:
    """Show a progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty() or not total:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task(verb, total=total)
        yield lambda: bar.advance(task)
