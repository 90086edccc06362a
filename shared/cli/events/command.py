"""`tocsin events`: create, look up, change and import timed events."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from ...core.errors import TocsinError
from ...core.label_text import labels_text
from ...core.readable import count_of, readable_duration
from ..commands import Yes, add_commands
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from ..importing import import_
from ..session import CommandSession, api_path, parse_pairs, parse_payload, usage_errors, without_fields
from ..terminal.output import duration_text
from ..terminal.times import NEVER, duration_option, expiry_option, time_option
from ..watching import MAX_INTERVAL
from .fanouts import Channels, channel_fields, is_fanout, print_fanout, print_made, print_report
from .options import (
    Changed,
    ContentType,
    Dead,
    Followed,
    Header,
    Listed,
    Method,
    OnDead,
    OnDelivered,
    Path,
    Query,
    Remove,
    Retry,
    Timeout,
    filter_of,
    target_of,
    terms_of,
)

_HELP = "Create, import, look up, cancel, move, redrive and follow timed events."
DAY = 86_400_000
PAST_FROM = 60_000
"""Milliseconds by which a new due time must be past for a warning: the clocks of client and service may differ."""
Id = Annotated[str, typer.Argument(metavar="EVENT", help="Id of the event, such as order-17.", show_default=False)]
SomeIds = Annotated[
    list[str] | None, typer.Argument(metavar="[EVENT...]", help="Ids of events, such as order-17. Not with filters.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"create": create, "import": import_, "get": get})
    add_commands(group, {"list": list_, "stats": stats}, watch=True)
    add_commands(group, {"change": change, "move": move, "cancel": cancel, "fire": fire, "redrive": redrive, "tail": tail})
    app.add_typer(group, name="events")


def create(
    session: CommandSession,
    payload: Annotated[
        str | None, typer.Option(help="Payload as JSON, such as '{\"order\": 17}'; @FILE reads a file, @- standard input. Default: {}.")
    ] = None,
    due: Annotated[str | None, time_option("Time to deliver at: 21:30, tomorrow 9:00, 2026-11-21T10:21:55Z. Or give --delay.")] = None,
    delay: Annotated[str | None, duration_option("Time from now to the delivery, as a duration such as 30s. Or give --due.")] = None,
    id: Annotated[str | None, typer.Option(help="Your id for the event, such as order-17. The same id again is the same event.")] = None,
    channel: Channels = None,
    expires: Annotated[
        str | None, expiry_option("Stop trying this duration after the due time, such as 1h; never overrides the tenant's default.")
    ] = None,
    flex: Annotated[str | None, duration_option("Deliver at any time within this duration after the due time, such as 5m.")] = None,
    durability: Annotated[Literal["fast", "standard", "mirrored"] | None, typer.Option(help="Durability of the event.")] = None,
    ordering_key: Annotated[
        str | None, typer.Option(help="Events with the same key are delivered in order if the channel says so, such as customer-7.")
    ] = None,
    collapse: Annotated[
        str | None, duration_option("Replace the waiting event with this id; it is delivered after this time at the latest, such as 5m.")
    ] = None,
    on_conflict: Annotated[
        Literal["keep", "error", "redrive"] | None,
        typer.Option(help="If an event with this id is dead: keep it, fail, or redrive it."),
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="Label as NAME=VALUE, such as team=blue. Repeatable.")] = None,
    retry: Retry = None,
    timeout: Timeout = None,
    content_type: ContentType = None,
    on_delivered: OnDelivered = None,
    on_dead: OnDead = None,
    path: Path = None,
    query: Query = None,
    method: Method = None,
    header: Header = None,
    wait: Annotated[bool, typer.Option("--wait", help="Print each attempt until the end. Exit code 1 if it is not delivered.")] = False,
) -> None:
    """Schedule an event.

    Examples:
        tocsin events create --delay 30s --payload '{"order": 17}' --channel billing --channel stock
        tocsin events create --due 'tomorrow 9:00' --id order-17 --label team=blue --wait
        tocsin events create --delay 1h --payload @order.xml --content-type text/xml --timeout 45s
    """
    from ...client import calls

    if (due is None) == (delay is None):
        advice = "For example: --delay 30s, or --due 'tomorrow 9:00'."
        raise CommandFailed("give exactly one of --due and --delay", where="--due, --delay", advice=advice, status=Exit.USAGE)
    aimed = channel_fields(channel)
    channels = aimed.pop("channels", None)
    given: dict[str, Any] = {"due": due, "delay": delay, "id": id, **aimed, "expires": expires, "flex": flex}
    given |= {"durability": durability, "labels": parse_pairs(label or [], "--label") or None}
    given |= {"ordering_key": ordering_key, "collapse": collapse, "on_conflict": on_conflict}
    given |= terms_of(retry, timeout, content_type)
    given |= {"on_delivered": on_delivered, "on_dead": on_dead, "target": target_of(path, query, method, header)}
    fields: Any = {name: value for name, value in given.items() if value is not None} | _without_end(expires)
    content: Any = None
    if payload is not None or content_type is not None or not calls.may_lack_payload(fields):
        content = parse_payload(payload, content_type)
    with usage_errors("--due, --delay"):
        document = calls.event_document(content, fields, make_id=True, channels=channels)
    made = session.send("POST", "events", document, repeatable="id" in document)
    ended = [each for each in (made["events"] if channels is not None else [made]) if each["state"] in calls.UNDELIVERED]
    for each in ended:
        print(f"tocsin: {each['id']} exists and is {each['state']}: nothing was scheduled; see --on-conflict", file=sys.stderr)
    if due is not None and not ended:
        _warn_of_past(made["events"][0] if channels is not None else made)
    if not (wait and session.json):
        if channels is not None:
            print_made(session, made)
        else:
            session.print_result(made, f"{made['id']} is {made['state']}, due {made['due']}")
    if wait:
        from .following import wait_for_end

        session.flush()
        wait_for_end(session, [each["id"] for each in made["events"]] if channels is not None else [made["id"]])


def _without_end(expires: str | None) -> dict[str, None]:
    """Return the field of an event that never lapses, whatever its tenant's default is."""
    return {"expires": None} if expires == NEVER else {}


def get(session: CommandSession, id: Id) -> None:
    """Show an event and its delivery attempts, or the events of a fan-out.

    Examples:
        tocsin events get order-17
    """
    found = session.get(api_path("events", id))
    if is_fanout(found):
        print_fanout(session, found)
        return
    if session.json:
        session.emit(found)
        return
    attempts, reasons = found.pop("attempts", None) or (), found.pop("late_because", None) or ()
    session.screen.fields(found)
    if reasons:
        session.screen.gap()
        why = [(each["ms"], each["reason"], each["text"]) for each in reasons]
        session.screen.table(("ms", "reason", "why"), why, title="late because")
    session.screen.gap()
    rows = [(each["at"], each["outcome"], each.get("status"), duration_text(each["took_ms"]), each.get("error")) for each in attempts]
    session.screen.table(("at", "outcome", "status", "took", "error"), rows, title="attempts")
    answered = [each for each in attempts if each.get("answer")]
    if answered:
        _add_answer(session, answered[-1])


def _add_answer(session: CommandSession, attempt: Mapping[str, Any]) -> None:
    """Show the head of the answer to an attempt."""
    answer = attempt["answer"]
    session.screen.gap()
    kind = answer.get("content_type") or ("no content type" if answer.get("body") else "no body")
    session.screen.line(f"answer at {attempt['at']}: {kind}", style="bold")
    for name, value in (answer.get("headers") or {}).items():
        session.screen.line(f"{name}: {value}")
    for line in (answer.get("body") or "").splitlines():
        session.screen.line(line)
    if answer.get("truncated"):
        session.screen.line("... (the rest was not kept)")


def list_(
    session: CommandSession,
    filters: Listed,
    held: Annotated[bool, typer.Option("--held", help="Only events that a paused channel or a circuit breaker holds.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of events to list.")] = 100,
) -> None:
    """List events, sorted by due time.

    If more events match, any of them are listed: narrow the list with --from and --to.

    Examples:
        tocsin events list --state dead
        tocsin events list --from 2026-11-21T10:00:00Z --to 2026-11-21T11:00:00Z -n 1000
        tocsin events list --label order=17 --label team=blue
    """
    query = filter_of(filters)
    query |= {"label": labels_text(query.pop("labels", {})), "held": "true" if held else None}
    # One more than is shown tells whether there are more.
    found = session.items("events", limit=limit if session.json else limit + 1, **query)
    columns = ("id", "due", "state", "channel", "attempts", "late", "error")
    if session.json:
        session.print_list(found, columns, _row, empty="")
        return
    every = list(found)
    rows = sorted(every[:limit], key=lambda each: (each["due"], each["id"]))
    session.print_list(rows, columns, _row, empty="no events")
    if len(every) > limit:
        given = {name for name, value in query.items() if value}
        total = "" if given - {"state"} else _total(session, query.get("state"))
        session.screen.gap()
        advice = f"-n {10 * limit} shows more; --from, --to and --channel narrow the list."
        session.screen.line(f"Showing {len(rows):,}{total}. {advice}", style="dim")


def _total(session: CommandSession, state: str | None) -> str:
    """Return the number of the tenant's events in a state whose count holds all of them."""
    counts = session.get("stats")
    if state == "retrying":
        return f" of {counts['retrying'] - counts.get('working', 0):,}"
    if state == "working":
        return f" of {counts.get('working', 0):,}"
    if state == "scheduled":
        return f" of {counts['open'] - counts['retrying']:,}"
    # The counts of ended events cover a day, and the list all that are kept.
    return ""


def stats(session: CommandSession) -> None:
    """Show how many events the tenant has in each state, and how late deliveries are.

    Examples:
        tocsin events stats
        tocsin events stats --watch 5
    """
    found = session.get("stats")
    if session.json:
        session.emit(found)
        return
    channels, late = found.get("channels") or {}, {f"late {name}": duration_text(value) for name, value in found["late_ms"].items()}
    session.screen.fields({**without_fields(found, "channels", "late_ms"), **late})
    session.screen.gap()
    rows = [(name, *(figures.get(each) for each in ("state", "delivered", "dead", "held"))) for name, figures in sorted(channels.items())]
    session.screen.table(("channel", "state", "delivered", "dead", "held"), rows, title="channels")


def change(
    session: CommandSession,
    id: Id,
    due: Annotated[str | None, time_option("New time to deliver at, such as 21:30 or 2026-11-21T10:21:55Z.")] = None,
    delay: Annotated[str | None, duration_option("New time from now to the delivery, as a duration such as 30s.")] = None,
    payload: Annotated[str | None, typer.Option(help="New payload as JSON, such as '{\"order\": 18}'; @FILE reads a file.")] = None,
    channel: Annotated[str | None, typer.Option(help="New channel to deliver to, such as default.")] = None,
    expires: Annotated[
        str | None, expiry_option("New duration after the due time at which delivery stops, such as 1h; with never it goes on.")
    ] = None,
    retry: Retry = None,
    timeout: Timeout = None,
    content_type: ContentType = None,
    on_delivered: OnDelivered = None,
    on_dead: OnDead = None,
    path: Path = None,
    query: Query = None,
    method: Method = None,
    header: Header = None,
    remove: Remove = None,
) -> None:
    """Change an event whose delivery has not started. --path, --query, --method and --header together replace its whole target.

    Examples:
        tocsin events change order-17 --delay 2h
        tocsin events change order-17 --payload @order.json
        tocsin events change order-17 --path /orders/18 --on-dead alarms --remove expires
    """
    from ...client import calls

    given: dict[str, Any] = {"due": due, "delay": delay, "channel": channel, "expires": expires}
    given |= terms_of(retry, timeout, content_type)
    given |= {"on_delivered": on_delivered, "on_dead": on_dead, "target": target_of(path, query, method, header)}
    body = {name: value for name, value in given.items() if value is not None} | _without_end(expires)
    for name in remove or ():
        if name.field in body:
            raise CommandFailed(f"--remove {name} and a new value exclude each other", advice="Give one of them.", status=Exit.USAGE)
        body[name.field] = None
    if payload is not None:
        body["payload"] = calls.sent_payload(parse_payload(payload, content_type), body)
    if not body:
        raise CommandFailed("name at least one thing to change", advice="Add an option, such as --delay 2h.", status=Exit.USAGE)
    found = session.send("PATCH", api_path("events", id), body)
    if is_fanout(found):
        print_report(session, found)
        return
    if due is not None:
        _warn_of_past(found)
    session.print_result(found, f"{found['id']} is {found['state']}, due {found['due']}")


def _warn_of_past(event: Mapping[str, Any]) -> None:
    """Say on standard error if an event that has just got its due time is overdue."""
    past = (time.time() - datetime.fromisoformat(event["due"]).timestamp()) * 1000
    if past >= PAST_FROM and not event.get("expires"):
        ago = count_of(int(past // DAY), "day") if past >= 2 * DAY else readable_duration(past)
        print(f"tocsin: due {ago} ago: it is delivered now", file=sys.stderr)


def move(
    session: CommandSession,
    *,
    due: Annotated[str | None, time_option("New time to deliver at, such as 21:30 or 2026-11-21T10:21:55Z.")] = None,
    later: Annotated[str | None, duration_option("Time by which to deliver later, as a duration such as 1h.")] = None,
    earlier: Annotated[str | None, duration_option("Time by which to deliver earlier, as a duration such as 1h.")] = None,
    filters: Changed,
    yes: Yes = False,
) -> None:
    """Move all events that match, after their number is confirmed. To move one event, use change.

    Examples:
        tocsin events move --label order=17 --later 1h
        tocsin events move --channel default --to 2026-11-21T12:00:00Z --due 2026-11-21T12:00:00Z
    """
    from .jobs import move_options, run_bulk

    filter = filter_of(filters)
    if not filter:
        raise CommandFailed("give a filter, such as --label", advice="For example: --label order=17 --later PT1H", status=Exit.USAGE)
    run_bulk(session, "move", filter, yes, **move_options(due, later, earlier))


def cancel(
    session: CommandSession,
    filters: Changed,
    ids: SomeIds = None,
    yes: Yes = False,
) -> None:
    """Cancel events by id, or all that match. After a success, no delivery of them starts.

    Examples:
        tocsin events cancel order-17 order-18
        tocsin events cancel --label order=17 --channel default
    """
    from ...client import calls

    def cancel_one(id: str) -> None:
        with usage_errors("EVENT"):
            call = calls.cancel(id)
        session.do(call)
        session.print_result({"id": id, "state": "cancelled"}, f"{id} is cancelled")

    _change_some(session, "cancel", ids, filters, cancel_one, yes)


def fire(
    session: CommandSession,
    filters: Changed,
    ids: SomeIds = None,
    yes: Yes = False,
) -> None:
    """Deliver events now instead of at their due times: by id, or all that match.

    Examples:
        tocsin events fire order-17
        tocsin events fire --label order=17
    """
    _change_some(session, "fire", ids, filters, lambda id: _post(session, id, "fire"), yes)


def redrive(
    session: CommandSession,
    *,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[EVENT...]", help="Ids of dead events. Not with --all or filters.", show_default=False)
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Redrive all dead letters, or those that match the filters.")] = False,
    filters: Dead,
    yes: Yes = False,
) -> None:
    """Deliver dead letters again: by id, or all that match. Filters without --all count them first, and ask.

    Examples:
        tocsin events redrive order-17
        tocsin events redrive --channel default --error 'status 503'
        tocsin events redrive --all --channel default --from 2026-11-21T00:00:00Z --yes
    """
    filter = filter_of(filters)
    if bool(ids) == (all_ or bool(filter)):
        advice = "For example: tocsin events redrive order-17, or tocsin events redrive --channel default"
        raise CommandFailed("give ids, or filters such as --channel, or --all", advice=advice, status=Exit.USAGE)
    if ids or not all_ or filter.keys() - {"from", "to", "channel"}:
        _change_some(session, "redrive", ids, filters, lambda id: _post(session, id, "redrive"), yes)
        return
    session.confirm("Redrive all dead letters that match", yes)
    found = session.send("POST", "dead-letters/redrive", filter)
    session.print_result(found, f"{count_of(found['redriven'], 'dead letter')} redriven")


def tail(
    session: CommandSession,
    *,
    window: Annotated[float, typer.Option(min=1, max=3600, help="Follow events that were due up to this many seconds ago.")] = 60.0,
    every: Annotated[float, typer.Option(min=0.2, max=MAX_INTERVAL, help="Seconds between two refreshes.")] = 2.0,
    filters: Followed,
    times: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N refreshes, such as 3.")] = None,
) -> None:
    """Follow events as they fall due: print a line for every state that is seen.

    Each refresh lists the events of the window. Use it to watch an app; do not feed a program with it.

    Examples:
        tocsin events tail
        tocsin events tail --channel default --state dead --window 600
    """
    from .following import follow

    follow(session, window=window, every=every, times=times, **filters)


def _post(session: CommandSession, id: str, verb: str) -> None:
    found = session.send("POST", api_path("events", id, verb))
    if is_fanout(found):
        print_report(session, found)
    else:
        session.print_result(found, f"{id} is {found['state']}")


def _change_some(
    session: CommandSession, verb: str, ids: list[str] | None, filters: Mapping[str, Any], act: Callable[[str], None], yes: bool
) -> None:
    """Call `act` for every id, or change all events that match. Raises `CommandFailed` unless either ids or filters are given.

    The failure of an id does not stop the others; the last failure is raised, the ones before are printed.
    """
    filter = filter_of(filters)
    if bool(ids) == bool(filter):
        advice = f"For example: tocsin events {verb} order-17"
        raise CommandFailed("give ids, or filters such as --label", advice=advice, status=Exit.USAGE)
    if not ids:
        from .jobs import run_bulk

        run_bulk(session, verb, filter, yes)
        return
    last: TocsinError | None = None
    for id in ids:
        try:
            act(id)
        except TocsinError as failed:
            if last is not None:
                typer.echo(to_command_failure(last).text(), err=True)
            last = failed
    if last is not None:
        raise last


def _row(each: dict[str, Any]) -> Sequence[Any]:
    late = duration_text(each["late_ms"]) if each.get("late_ms") is not None else None
    return each["id"], each["due"], each["state"], each.get("channel"), len(each.get("attempts") or ()), late, _reason(each)


def _reason(event: Mapping[str, Any]) -> str | None:
    """Return why an event waits, and the error with which it ended or its last attempt failed."""
    attempts = event.get("attempts") or ()
    held = f"held: {event['held']['reason']}" if event.get("held") else None
    error = event.get("error") or (attempts[-1].get("error") if attempts else None)
    return "; ".join(part for part in (held, error) if part) or None
