"""`tocsin status`: the state of the whole system on one screen, as far as the key may see it; with an admin key, of each tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ...core.readable import count_of
from ..commands import add_commands
from ..exits import Exit
from ..session import CommandSession, api_path, read_if_allowed
from ..terminal.output import duration_text

_CHECK_HELP = "Exit with code 1 if something needs a person or cannot be looked at; with --watch, as soon as it does."
OPEN_STATUSES = ("scheduled", "started")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"status": status}, watch=True)


def status(
    session: CommandSession,
    check: Annotated[bool, typer.Option("--check", help=_CHECK_HELP)] = False,
) -> None:
    """Show the whole system on one screen: health, events, fleets, turns, maintenance, and what needs a person.

    With an admin key and without --tenant, it has a line for each tenant, the worst first, as of a minute ago at most. What the key may
    not see is named.

    Examples:
        tocsin status --watch 5
        tocsin status --check --json
    """
    found = gather(session)
    worries = list(list_needs(found))
    if session.json:
        session.emit({**found, "needs": worries})
    else:
        _show(session, found, worries)
    if check and (worries or found["denied"]):
        raise typer.Exit(Exit.FAILED)


def gather(session: CommandSession) -> dict[str, Any]:
    """Read the state of the system. `denied` holds the app's reason for each part that the key may not see."""
    denied: dict[str, str] = {}

    def look(name: str, read: Any) -> Any:
        found, reason = read_if_allowed(read)
        if reason:
            denied[name] = reason
        return found

    found: dict[str, Any] = {"url": session.app.url, "health": readiness(session)}
    if not session.app.tenant and is_operator(session):
        tenants = [{"name": each["tenant"], **each} for each in session.items("tenant-overview")]
        if session.get("tenant-overview", limit=1).get("incomplete"):
            denied["exact figures of some tenants"] = "the app could not count everything"
        return {**found, "events": None, "load": None, "fleets": None, "tenants": tenants, "denied": denied}
    found["events"] = look("events", lambda: session.get("stats"))
    found["load"] = look("load", lambda: sum(each["scheduled"] for each in session.get("load")["items"]))
    fleets = look("fleets", lambda: list(session.items("fleets")))
    found["fleets"] = [_fleet(session, each, look) for each in fleets] if fleets is not None else None
    return {**found, "denied": denied}


def is_operator(session: CommandSession) -> bool:
    """Return True for a key that may act for every tenant: it has none of its own."""
    key, _ = read_if_allowed(lambda: session.get("key"))
    return key is not None and "admin" in key.get("scopes", ()) and not key.get("tenant")


_FIGURES = ("stuck", "overdue", "dead", "blocked_channels", "fleets", "retrying", "open")
"""The figures of a tenant, in the order of their urgency."""


def _fleet(session: CommandSession, fleet: dict[str, Any], look: Any) -> dict[str, Any]:
    name = fleet["name"]
    stale = look(f"fleet {name}", lambda: session.get(api_path("fleets", name, "leases", "stale"), limit=1000))
    turns = look(f"turns of {name}", lambda: list(session.items(api_path("fleets", name, "turns"), limit=1)))
    events = look(f"maintenance of {name}", lambda: list(session.items(api_path("fleets", name, "maintenance", "events"), limit=50)))
    return {
        "name": name,
        "partitions": fleet["partitions"],
        "stale": len(stale["items"]) if stale else None,
        "servers": stale["servers"] if stale else None,
        "alarms": [each["alarm"] for each in stale["alarms"]] if stale else [],
        "turn": turns[0] if turns else None,
        "maintenance": [each for each in events or [] if each["status"] in OPEN_STATUSES],
    }


def readiness(session: CommandSession) -> dict[str, Any]:
    """Return the answer of `readyz`, which needs no key."""
    import httpx

    from ...client.errors import Unreachable, Unreadable
    from ...client.http import api_base

    url = api_base(session.app.url).removesuffix("v1/") + "readyz"
    try:
        # The client's connections and transport, but not its retries: 503 is an answer here.
        answer = session.client._http.get(url)
    except httpx.TransportError as error:
        raise Unreachable(f"no answer: {error}", sent=False) from error
    try:
        found = answer.json()
        return (
            {name: found[name] for name in ("status", "storage", "clock_skew_ms", "timers")}
            | {"clocks": found.get("clocks")}
            | ({"detail": found["detail"]} if "detail" in found else {})
        )
    except (ValueError, KeyError, TypeError):
        raise Unreadable(f"status {answer.status_code}, but the body is not the JSON of readyz") from None


def list_needs(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what needs a person, a sentence each."""
    health, events = found["health"], found["events"]
    if health["status"] != "ready":
        yield f"the app is not ready: {health.get('detail', '')}"
    yield from _event_needs(events)
    for tenant in found.get("tenants", ()):
        yield from (f"tenant {tenant['name']}: {need}" for need in _tenant_needs(tenant))
    for fleet in found["fleets"] or ():
        if fleet["stale"] and _used(fleet):
            yield f"fleet {fleet['name']}: {count_of(fleet['stale'], 'partition')} without a server"
        if fleet["servers"] and _used(fleet) and fleet["servers"]["live"] < fleet["servers"]["needed"]:
            yield f"fleet {fleet['name']}: {fleet['servers']['live']} of {count_of(fleet['servers']['needed'], 'server')}"
        for alarm in fleet["alarms"]:
            yield f"fleet {fleet['name']}: alarm {alarm}"
        for event in fleet["maintenance"]:
            if event["alarms"]:
                yield f"fleet {fleet['name']}: {event['type']} {event['event_id']}: {', '.join(event['alarms'])}"


def _tenant_needs(tenant: Mapping[str, Any]) -> Iterator[str]:
    channels = {each["channel"]: {"state": each["state"]} for each in tenant["blocked"]}
    yield from _event_needs({**tenant, "channels": channels})
    if (unnamed := tenant["blocked_channels"] - len(channels)) > 0:
        yield f"{count_of(unnamed, 'more blocked channel')}"
    if tenant["fleets"]:
        yield f"{count_of(tenant['fleets'], 'fleet')} with needs"


def _event_needs(events: Mapping[str, Any] | None) -> Iterator[str]:
    if events:
        for name, what in (("overdue", "overdue"), ("stuck", "stuck"), ("dead", "dead letters of the last day")):
            if events.get(name):
                yield f"events {what}: {events[name]}"
        for channel, figures in sorted(events.get("channels", {}).items()):
            if figures.get("state") not in ("ok", "", None):
                yield f"channel {channel}: {figures['state']}"


def _show(session: CommandSession, found: Mapping[str, Any], worries: Sequence[str]) -> None:
    screen, health, events = session.screen, found["health"], found["events"]
    screen.line(f"{found['url']}: {health['status']}", style="bold")
    timers = [f"{name} {'LATE ' if timer['late'] else ''}{_ago(timer['age_s'])}" for name, timer in sorted(health["timers"].items())]
    skew = duration_text(health["clock_skew_ms"])
    clocks = health.get("clocks") or {}
    if clocks.get("running") == "message":
        screen.line(f"  the platform's timer has stopped ({_ago(clocks['timer_age_s'])}); messages make the sweeps", style="yellow")
    screen.line(f"  last run of timers: {', '.join(timers) or 'none yet'}; clock differs by {skew} from storage's")
    screen.gap()
    if events:
        late = events["late_ms"]
        states = ("open", "overdue", "retrying", "working", "held", "delivered", "dead", "lapsed", "cancelled")
        figures = [*(events.get(name, 0) for name in states), duration_text(late["p50"]), duration_text(late["p99"])]
        screen.table([*states, "late p50", "p99"], [figures], title="events")
        screen.line(f"  due in the next hour: {found['load']}")
        screen.gap()
    if "tenants" in found:
        rows = [(each["name"], *(each[name] for name in _FIGURES)) for each in found["tenants"]]
        screen.table(
            ("tenant", "stuck", "overdue", "dead", "blocked channels", "fleets with needs", "retrying", "open"),
            rows,
            title="tenants",
            empty="no tenants",
        )
        screen.gap()
    if found["fleets"] is not None:
        columns = ("fleet", "partitions", "without", "servers", "turn", "maintenance", "alarms")
        screen.table(columns, [_row(each) for each in found["fleets"]], title="fleets")
        screen.gap()
    hidden: dict[str, list[str]] = {}
    for name, why in found["denied"].items():
        hidden.setdefault(why, []).append(name)
    for why, names in hidden.items():
        screen.line(f"not shown: {', '.join(names)} ({why})")
    nothing = "nothing among what is shown" if found["denied"] else "nothing"
    screen.table(("",), [(worry,) for worry in worries], title="needs a person", empty=nothing)


def _used(fleet: Mapping[str, Any]) -> bool:
    """Return True if the fleet ever had a server. A fleet for turns or maintenance alone needs none."""
    return not fleet["servers"] or bool(fleet["servers"].get("used", True))


def _row(fleet: Mapping[str, Any]) -> Sequence[Any]:
    servers, turn = fleet["servers"], fleet["turn"]
    present = "none yet" if not _used(fleet) else f"{servers['live']} of {servers['needed']}" if servers else None
    return (
        *(fleet["name"], fleet["partitions"], fleet["stale"] if _used(fleet) else None, present),
        f"{turn['holder']} {turn['state']}" if turn else None,
        ", ".join(f"{each['type']} {each['status']}" for each in fleet["maintenance"]) or None,
        ", ".join(fleet["alarms"]) or None,
    )


def _ago(seconds: float | None) -> str:
    return "not yet" if seconds is None else f"{duration_text(round(seconds * 1000))} ago"
