"""`tocsin maintenance`: Azure's Scheduled Events of a fleet, seen from the app."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ..session import Session, at, commands, without
from ..terminal.output import span
from ..terminal.watching import LONGEST, again

_HELP = "Maintenance of a fleet: what Azure will do, where the nodes stand, approvals and rehearsals."
Fleet = Annotated[str, typer.Argument(help="The fleet.", show_default=False)]
Id = Annotated[str, typer.Argument(metavar="EVENT", help="The event's id.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stands beside the decision.")]
OPEN = ("scheduled", "started")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"list": list_, "show": show}, watch=True)
    commands(group, {"approve": approve, "hold": hold, "rehearse": rehearse, "watch": watch})
    app.add_typer(group, name="maintenance")


def list_(
    session: Session,
    fleet: Fleet,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many.")] = 50,
    open_only: Annotated[bool, typer.Option("--open", help="Only those that are not over.")] = False,
) -> None:
    """Scheduled events: open ones first, then the latest."""
    found = session.items(at("fleets", fleet, "maintenance", "events"), limit=limit)
    shown = (each for each in found if not open_only or each["status"] in OPEN)
    columns = ("event", "type", "status", "not before", "takes", "nodes", "approval", "alarms")
    session.listed(shown, columns, row, empty="no scheduled events")


def show(session: Session, fleet: Fleet, event_id: Id) -> None:
    """One event: its nodes, its approval, what it did."""
    found = session.get(at("fleets", fleet, "maintenance", "events", event_id))
    if session.json:
        session.emit(found)
        return
    nodes, impact, duration = found["nodes"], found["impact"], found["duration_s"]
    rest = without(found, "nodes", "approval", "impact", "duration_s")
    takes = {"takes": _takes(duration), "alarms": ", ".join(found["alarms"]), "resources": ", ".join(found["resources"])}
    session.screen.fields({**rest, **takes})
    session.screen.gap()
    rows = [(node, told["phase"], told["reported"], told.get("reason")) for node, told in sorted(nodes.items())]
    session.screen.table(("node", "phase", "reported", "why"), rows, title="nodes")
    session.screen.gap()
    session.screen.fields(found["approval"] or {"state": "none"}, title="approval")
    session.screen.gap()
    session.screen.fields(dict(_impact(impact)), title="impact")


def _impact(impact: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values for people: all of them are milliseconds."""
    for name, told in impact.items():
        if isinstance(told, dict):
            shown = ", ".join(f"{node} {span(took)}" for node, took in sorted(told.items())) or "nothing"
        else:
            shown = "not known" if told is None or told < 0 else span(told)
        yield name.removesuffix("_ms"), shown


def _takes(seconds: int) -> str:
    """Azure tells -1 where it does not know."""
    return "not known" if seconds < 0 else f"{seconds} s"


def approve(session: Session, fleet: Fleet, event_id: Id, reason: Reason = "") -> None:
    """Have an event approved before its time, once its nodes have prepared; lifts a hold."""
    _decide(session, fleet, event_id, "approve", reason)


def hold(session: Session, fleet: Fleet, event_id: Id, reason: Reason = "") -> None:
    """Give no approval for an event; Azure goes on at NotBefore all the same."""
    _decide(session, fleet, event_id, "hold", reason)


def _decide(session: Session, fleet: str, event_id: str, verb: str, reason: str) -> None:
    body = {"reason": reason} if reason else {}
    found = session.send("POST", at("fleets", fleet, "maintenance", "events", event_id, verb), body)
    session.said(found, f"event {event_id}: {found['state']}")


def rehearse(
    session: Session,
    fleet: Fleet,
    nodes: Annotated[list[str], typer.Option("--node", help="Whose hooks to run; any number of times.", show_default=False)],
    type_: Annotated[str, typer.Option("--type", help="Freeze, Reboot, Redeploy, Preempt or Terminate.")] = "Freeze",
    notice: Annotated[str, typer.Option(help="From now to its NotBefore.")] = "PT5M",
    seconds: Annotated[int, typer.Option(min=0, help="How long it is said to take.")] = 9,
) -> None:
    """Run nodes' hooks as for an event, without Azure."""
    body = {"nodes": nodes, "type": type_, "notice": notice, "duration_s": seconds}
    found = session.send("POST", at("fleets", fleet, "maintenance", "rehearse"), body)
    session.said(found, f"{found['event_id']} begins in {notice}; tocsin maintenance watch {fleet} shows how it goes")


def watch(
    session: Session,
    fleet: Fleet,
    every: Annotated[float, typer.Option(min=0.1, max=LONGEST, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, help="End after so many looks.")] = None,
    until_over: Annotated[bool, typer.Option("--until-over", help="End when no event is open any more.")] = False,
) -> None:
    """Tell every change as it is seen: events, their nodes' phases, approvals, alarms."""
    known: dict[str, dict[str, str]] | None = None
    begun = False

    def look() -> bool:
        nonlocal known, begun
        events = list(session.items(at("fleets", fleet, "maintenance", "events"), limit=200))
        now = {each["event_id"]: standing(each) for each in events}
        open_now = {each["event_id"] for each in events if each["status"] in OPEN}
        for event_id, what, before, after in changes(known or {}, now):
            # What was over before this began is no change.
            if known is not None or event_id in open_now:
                _tell(session, event_id, what, before, after)
        over = until_over and begun and not open_now
        known, begun = now, begun or bool(open_now)
        return over

    again(session, look, every=every, times=times)


def _tell(session: Session, event_id: str, what: str, before: str, after: str) -> None:
    from datetime import UTC, datetime

    seen = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if session.json:
        session.emit({"seen": seen, "event_id": event_id, "what": what, "before": before or None, "after": after})
        return
    session.screen.line(f"{seen}  {event_id}  {what}: {f'{before} -> ' if before else ''}{after}")


def standing(event: Mapping[str, Any]) -> dict[str, str]:
    """What of an event may change, each by a name."""
    approval = event["approval"]
    return {
        "event": f"{event['type']} {event['status']}",
        **{f"node {node}": told["phase"] for node, told in sorted(event["nodes"].items())},
        **({"approval": f"{approval['state']} by {approval['by']}"} if approval else {}),
        **{f"alarm {alarm}": "raised" for alarm in event["alarms"]},
    }


def changes(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Event, what changed, from what ('' for nothing) to what."""
    for event_id, now in after.items():
        then = before.get(event_id, {})
        for what, told in now.items():
            if then.get(what, "") != told:
                yield event_id, what, then.get(what, ""), told
        for what in then.keys() - now.keys():
            yield event_id, what, then[what], "gone"


def row(each: Mapping[str, Any]) -> Sequence[Any]:
    """An event in a table."""
    phases: dict[str, int] = {}
    for told in each["nodes"].values():
        phases[told["phase"]] = phases.get(told["phase"], 0) + 1
    approval = each["approval"]["state"] if each["approval"] else None
    nodes = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    takes, alarms = _takes(each["duration_s"]), ", ".join(each["alarms"]) or None
    return each["event_id"], each["type"], each["status"], each["not_before"], takes, nodes, approval, alarms
