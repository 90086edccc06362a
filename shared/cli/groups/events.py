"""`tocsin events`: timed events, one by one and by the million."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ...core.errors import TocsinError
from ..exits import Exit
from ..failures import CommandFailed, explained
from ..session import Session, Yes, at, commands, given_json, pairs, usage, without
from ..terminal.output import count, span
from ..terminal.watching import LONGEST

_HELP = "Timed events: create, import, look up, cancel, redrive, follow."
Id = Annotated[str, typer.Argument(metavar="EVENT", help="The event's id.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="EVENT...", help="Ids.", show_default=False)]
From = Annotated[str | None, typer.Option("--from", help="Due at this time or later: 2026-11-21T10:21:55Z.")]
To = Annotated[str | None, typer.Option("--to", help="Due before this time.")]
State = Annotated[str | None, typer.Option(help="scheduled, firing, retrying, delivered, dead, cancelled or lapsed.")]
Channel = Annotated[str | None, typer.Option(help="Of this channel.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"create": create, "import": import_, "get": get})
    commands(group, {"list": list_, "stats": stats}, watch=True)
    commands(group, {"change": change, "cancel": cancel, "fire": fire, "redrive": redrive, "tail": tail})
    app.add_typer(group, name="events")


def create(
    session: Session,
    payload: Annotated[str, typer.Option(help="JSON, or @FILE, or @- for standard input.")] = "{}",
    due: Annotated[str | None, typer.Option(help="When: 2026-11-21T10:21:55.250Z.")] = None,
    delay: Annotated[str | None, typer.Option(help="Or how long from now: PT30S.")] = None,
    id: Annotated[str | None, typer.Option(help="Your own name for it; the same again is the same event.")] = None,
    channel: Annotated[str | None, typer.Option(help="Where to; default unless told.")] = None,
    expires: Annotated[str | None, typer.Option(help="Not later than this duration after it was due.")] = None,
    flex: Annotated[str | None, typer.Option(help="Anywhere within this duration after it is due.")] = None,
    durability: Annotated[str | None, typer.Option(help="fast, standard or mirrored.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, any number of times.")] = None,
) -> None:
    """Schedule an event."""
    from ...client import calls

    given: dict[str, Any] = {"due": due, "delay": delay, "id": id, "channel": channel, "expires": expires, "flex": flex}
    given |= {"durability": durability, "labels": pairs(label or [], "--label") or None}
    told: Any = {name: value for name, value in given.items() if value is not None}
    with usage("--due, --delay"):
        document = calls.event_document(given_json(payload, "--payload"), told, make_id=True)
    made = session.send("POST", "events", document, repeatable="id" in document)
    session.said(made, f"{made['id']} is {made['state']}, due {made['due']}")


def get(session: Session, id: Id) -> None:
    """One event, with its attempts."""
    found = session.get(at("events", id))
    if session.json:
        session.emit(found)
        return
    attempts = found.pop("attempts", None) or ()
    session.screen.fields(found)
    session.screen.gap()
    rows = [(each["at"], each["outcome"], each.get("status"), span(each["took_ms"]), each.get("error")) for each in attempts]
    session.screen.table(("at", "outcome", "status", "took", "error"), rows, title="attempts")


def list_(
    session: Session,
    since: From = None,
    until: To = None,
    state: State = None,
    channel: Channel = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many.")] = 100,
) -> None:
    """Events, in no order."""
    found = session.items("events", limit=limit, from_=since, to=until, state=state, channel=channel)
    columns = ("id", "due", "state", "channel", "attempts", "late", "error")
    session.listed(found, columns, _row, empty="no events")


def stats(session: Session) -> None:
    """How the tenant's events stand."""
    found = session.get("stats")
    if session.json:
        session.emit(found)
        return
    channels, late = found.get("channels") or {}, {f"late {name}": span(value) for name, value in found["late_ms"].items()}
    session.screen.fields({**without(found, "channels", "late_ms"), **late})
    session.screen.gap()
    rows = [(name, *(told.get(each) for each in ("state", "delivered", "dead", "held"))) for name, told in sorted(channels.items())]
    session.screen.table(("channel", "state", "delivered", "dead", "held"), rows, title="channels")


def change(
    session: Session,
    id: Id,
    due: Annotated[str | None, typer.Option(help="Another time.")] = None,
    delay: Annotated[str | None, typer.Option(help="Or how long from now.")] = None,
    payload: Annotated[str | None, typer.Option(help="Another payload: JSON, or @FILE.")] = None,
    channel: Annotated[str | None, typer.Option(help="Another channel.")] = None,
    expires: Annotated[str | None, typer.Option(help="Another time to give it up.")] = None,
) -> None:
    """Change an event that is not being delivered yet."""
    given: dict[str, Any] = {"due": due, "delay": delay, "channel": channel, "expires": expires}
    body = {name: value for name, value in given.items() if value is not None}
    if payload is not None:
        body["payload"] = given_json(payload, "--payload")
    if not body:
        raise CommandFailed("name at least one thing to change", status=Exit.USAGE)
    found = session.send("PATCH", at("events", id), body)
    session.said(found, f"{found['id']} is {found['state']}, due {found['due']}")


def cancel(session: Session, ids: Ids) -> None:
    """Cancel events: once this has ended well, no delivery of them starts."""
    from ...client import calls

    def one(id: str) -> None:
        with usage("EVENT"):
            call = calls.cancel(id)
        session.do(call)
        session.said({"id": id, "state": "cancelled"}, f"{id} is cancelled")

    _each(ids, one)


def fire(session: Session, ids: Ids) -> None:
    """Deliver events now."""

    def one(id: str) -> None:
        found = session.send("POST", at("events", id, "fire"))
        session.said(found, f"{id} is {found['state']}")

    _each(ids, one)


def redrive(
    session: Session,
    ids: Annotated[list[str] | None, typer.Argument(metavar="[EVENT...]", help="Ids; none with --all.", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", help="All dead letters that match.")] = False,
    since: From = None,
    until: To = None,
    channel: Channel = None,
    yes: Yes = False,
) -> None:
    """Bring dead events back."""
    if all_ == bool(ids):
        raise CommandFailed("give ids, or --all", status=Exit.USAGE)
    if not all_ and (since or until or channel):
        raise CommandFailed("--from, --to and --channel go with --all", status=Exit.USAGE)
    if ids:

        def one(id: str) -> None:
            found = session.send("POST", at("events", id, "redrive"))
            session.said(found, f"{id} is {found['state']}")

        _each(ids, one)
        return
    session.confirm("Redrive all dead letters that match", yes)
    body = {name: value for name, value in (("from", since), ("to", until), ("channel", channel)) if value is not None}
    found = session.send("POST", "dead-letters/redrive", body)
    session.said(found, f"{count(found['redriven'], 'dead letter')} redriven")


def tail(
    session: Session,
    window: Annotated[float, typer.Option(min=1, max=3600, help="Seconds: events due from so long ago are followed.")] = 60.0,
    every: Annotated[float, typer.Option(min=0.2, max=LONGEST, help="Seconds between two looks.")] = 2.0,
    channel: Channel = None,
    state: State = None,
    times: Annotated[int | None, typer.Option(min=1, help="End after so many looks.")] = None,
) -> None:
    """Tell what becomes of events as they fall due: a line for every state that is seen.

    Costs the app a list of the window for every look: meant for looking on, not for feeding a program.
    """
    from .events_tail import follow

    follow(session, window=window, every=every, channel=channel, state=state, times=times)


def import_(
    session: Session,
    file: Annotated[str, typer.Argument(help="A file, or - for standard input.", show_default=False)],
    form: Annotated[Literal["ndjson", "csv"] | None, typer.Option("--format", help="Else by the file's name.")] = None,
    ids: Annotated[Literal["make", "none"], typer.Option(help="make: events without an id get one of their line.")] = "make",
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Events sent at once.")] = 2000,
    in_flight: Annotated[int, typer.Option(min=1, max=64, help="Batches under way at once.")] = 4,
    rejects: Annotated[Path | None, typer.Option(help="Where bad lines go; else FILE.rejects, or FILE.faults with --check.")] = None,
    progress: Annotated[Path | None, typer.Option(help="Where it is kept how far it is; else FILE.progress.")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="From the beginning, whatever was done before.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read the file, and tell what is wrong with its lines.")] = False,
) -> None:
    """Schedule the events of a file: NDJSON as the API takes it, or CSV with the names of fields in its first line.

    Stopped in the middle, the same command goes on from there. Ends with 1 where lines were rejected; they are in the file of rejects with
    their numbers.
    """
    from ..importing.command import Import, run_import

    source = None if file == "-" else Path(file)
    stem = source or Path("stdin")
    found = form or ("csv" if stem.suffix.lower() == ".csv" else "ndjson")
    plan = Import(
        session.app,
        source,
        found,
        # Those of an import that was stopped are not done with.
        rejects or stem.with_name(f"{stem.name}.{'faults' if check else 'rejects'}"),
        progress or stem.with_name(f"{stem.name}.progress"),
        ids=ids == "make",
        batch=batch,
        in_flight=in_flight,
        restart=restart,
        check=check,
    )
    done = run_import(plan)
    where = str(plan.rejects) if done.rejected else None
    told = {"lines": done.line, "accepted": done.accepted, "known": done.known, "rejected": done.rejected, "rejects": where}
    if check:
        text = f"{count(done.line, 'line')} read, {count(done.accepted, 'event')}, {count(done.rejected, 'bad line')}"
    else:
        text = f"{count(done.accepted, 'event')} scheduled, {done.known:,} were there already, {done.rejected:,} rejected"
    session.said(told, f"{text}: {where}" if where else text)
    if done.rejected:
        raise typer.Exit(Exit.FAILED)


def _each(ids: list[str], one: Callable[[str], None]) -> None:
    """All of them: one that fails does not stop the others; the last one's failure is the command's."""
    last: TocsinError | None = None
    for id in ids:
        try:
            one(id)
        except TocsinError as failed:
            if last is not None:
                typer.echo(explained(last).text(), err=True)
            last = failed
    if last is not None:
        raise last


def _row(each: dict[str, Any]) -> Sequence[Any]:
    late = span(each["late_ms"]) if each.get("late_ms") is not None else None
    return each["id"], each["due"], each["state"], each.get("channel"), len(each.get("attempts") or ()), late, each.get("error")
