"""`tocsin maintenance`: Azure's Scheduled Events of a fleet, as the app knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from ..commands import add_commands
from ..exits import Exit
from ..session import CommandSession, api_path, without_fields
from ..terminal.output import duration_text
from ..terminal.times import duration_option
from ..watching import MAX_INTERVAL, refresh

_HELP = "Follow and decide Azure's Scheduled Events of a fleet: nodes, approvals, rehearsals."
Fleet = Annotated[str, typer.Argument(help="Name of the fleet, such as web.", show_default=False)]
_ID_HELP = "Id of the Scheduled Event. tocsin maintenance list shows it."
Id = Annotated[str, typer.Argument(metavar="EVENT", help=_ID_HELP, show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Reason for the decision, such as 'the backup is done'. It is stored with it.")]
OPEN_STATUSES = ("scheduled", "started")
PHASES = {
    "before": "before",
    "out": "a node is out",
    "one_node": "one node catches up",
    "some_nodes": "some nodes catch up",
    "domain": "a fault domain catches up",
}
"""Phases of the caller probe, for people."""
VERDICTS = {"pending": "agents probe", "within": "within the bounds", "passed": "a bound is passed", "not-measured": "not measured"}
BAR = 24
"""Columns of the longest bar of latency."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"list": list_, "show": show, "story": story}, watch=True)
    add_commands(group, {"approve": approve, "hold": hold, "rehearse": rehearse, "forget": forget, "watch": watch})
    app.add_typer(group, name="maintenance")


def list_(
    session: CommandSession,
    fleet: Fleet,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of events to list.")] = 50,
    open_only: Annotated[bool, typer.Option("--open", help="Only events that have not ended.")] = False,
) -> None:
    """List Scheduled Events: open ones first, then the latest.

    Examples:
        tocsin maintenance list web
        tocsin maintenance list web --open --watch 5
    """
    found = session.items(api_path("fleets", fleet, "maintenance", "events"), limit=limit)
    chosen = (each for each in found if not open_only or each["status"] in OPEN_STATUSES)
    columns = ("event", "type", "status", "not before", "nodes", "approval", "alarms")
    session.print_list(chosen, columns, row, empty="no scheduled events")


def show(session: CommandSession, fleet: Fleet, event_id: Id) -> None:
    """Show a Scheduled Event: its nodes, its approval and its impact.

    Examples:
        tocsin maintenance show web 810a5c67-9997-5cac-a82c-ef5111ba3afa
    """
    found = session.get(api_path("fleets", fleet, "maintenance", "events", event_id))
    if session.json:
        session.emit(found)
        return
    nodes, impact, duration = found["nodes"], found["impact"], found["duration_s"]
    shown = {**found, "status": status_text(found)}
    if "waits_for" in shown:
        shown["waits_for"] = "; ".join(found["waits_for"])
    rest = without_fields(shown, "nodes", "approval", "impact", "duration_s", "permission", "probe", "catch_up_ms")
    takes = {"takes": _advertised_duration(duration), "alarms": ", ".join(found["alarms"]), "resources": ", ".join(found["resources"])}
    session.screen.fields({**rest, **takes, **_permission(found)})
    session.screen.gap()
    rows = [(name, node["phase"], node["reported"], node.get("reason")) for name, node in sorted(nodes.items())]
    session.screen.table(("node", "phase", "reported", "why"), rows, title="nodes")
    session.screen.gap()
    session.screen.fields(found["approval"] or {"state": "none"}, title="approval")
    session.screen.gap()
    session.screen.fields(dict(_impact(impact)), title="impact")
    _show_callers(session, found)


def _show_callers(session: CommandSession, event: Mapping[str, Any]) -> None:
    """Show what callers noticed of an event, and how long its nodes needed to catch up."""
    probe, caught_up = event.get("probe"), event.get("catch_up_ms", {})
    if caught_up:
        session.screen.gap()
        session.screen.fields({node: duration_text(took) for node, took in sorted(caught_up.items())}, title="time to catch up")
    if probe is None:
        return
    bound = probe.get("bound", {})
    limits = [f"p99 {bound['p99_ms']} ms"] if "p99_ms" in bound else []
    limits += [f"{bound['failures']:.2%} failures"] if "failures" in bound else []
    session.screen.gap()
    fields = {
        "verdict": VERDICTS.get(probe["verdict"], probe["verdict"]),
        "bounds": ", ".join(limits),
        "probed by": ", ".join(probe["nodes"]),
    }
    session.screen.fields(fields, title="callers")
    session.screen.gap()
    columns = ("phase", "probes", "failed", "p50", "p99", "p50 and p99")
    session.screen.table(columns, latency_rows(probe), empty="no probes")
    for sentence in probe["passed"]:
        session.screen.line(sentence, style="red")


def latency_rows(probe: Mapping[str, Any], longest: float = 0) -> Iterator[Sequence[Any]]:
    """Yield callers' latency by phase as rows of a table. The last column is a chart: p50 is dark, p99 light, and the bound is a line.

    longest: milliseconds of the longest bar, for several tables of one scale.
    """
    bound = probe.get("bound", {}).get("p99_ms")
    longest = max([longest, *(found["p99_ms"] or 0 for found in probe["phases"].values()), bound or 0], default=0)
    for phase, text in PHASES.items():
        found = probe["phases"].get(phase)
        if found is not None:
            p50, p99 = found["p50_ms"], found["p99_ms"]
            bar = "" if p50 is None or p99 is None else _bar(p50, p99, bound, longest)
            yield text, found["probes"], found["failures"], _milliseconds(p50), _milliseconds(p99), bar


def _bar(p50: float, p99: float, bound: float | None, longest: float) -> str:
    def columns(milliseconds: float) -> int:
        return max(1, round(milliseconds / longest * BAR))

    bar = ["█" if at < columns(p50) else "▒" if at < columns(p99) else " " for at in range(BAR)]
    if bound is not None and columns(bound) > columns(p99):
        bar[columns(bound) - 1] = "│"
    return "".join(bar).rstrip()


def _milliseconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def story(
    session: CommandSession,
    fleet: Fleet,
    event_id: Id,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of steps to list.")] = 1000,
    node: Annotated[str | None, typer.Option("--node", help="Only steps of this node, such as s7.", show_default=False)] = None,
) -> None:
    """List what happened in a Scheduled Event: the steps of all nodes and the app's decisions, in order of time.

    Examples:
        tocsin maintenance story web 810a5c67-9997-5cac-a82c-ef5111ba3afa
        tocsin maintenance story web 810a5c67-9997-5cac-a82c-ef5111ba3afa --node s7 --json
    """
    steps = session.items(api_path("fleets", fleet, "maintenance", "events", event_id, "story"), limit=limit, node=node)
    session.print_list(steps, ("time", "node", "by", "step", "what"), step_row, empty="no steps")


def step_row(each: Mapping[str, Any]) -> Sequence[Any]:
    """Return a step of a story as the row of a table."""
    corrected = each.get("clock_corrected_ms")
    clock = f" (the node's clock differs by {duration_text(abs(corrected))})" if corrected else ""
    mark = "! " if each["level"] == "warning" else ""
    return each["at"], each["node"] or "-", each["by"], each["action"], f"{mark}{each['text']}{clock}"


def _permission(event: Mapping[str, Any]) -> dict[str, str]:
    """Return whether the nodes of an event may prepare, for people. Fleets with the guard `approve` do not say it."""
    found = event.get("permission")
    if found is None:
        return {}
    return {"permission": f"refused: {found['reason']}" if found["state"] == "refused" else "granted"}


def _impact(impact: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an impact for people. All its values are milliseconds."""
    for name, value in impact.items():
        if isinstance(value, dict):
            text = ", ".join(f"{node} {duration_text(took)}" for node, took in sorted(value.items())) or "nothing"
        else:
            text = "not known" if value is None or value < 0 else duration_text(value)
        yield name.removesuffix("_ms"), text


def _advertised_duration(seconds: int) -> str:
    """Return the duration that Azure advertises for people. Azure sends -1 where it does not know."""
    return "not known" if seconds < 0 else f"{seconds} s"


def approve(session: CommandSession, fleet: Fleet, event_id: Id, reason: Reason = "") -> None:
    """Approve an event before its NotBefore time, once its nodes have prepared. Ends a hold.

    Examples:
        tocsin maintenance approve web 810a5c67-9997-5cac-a82c-ef5111ba3afa --reason 'the backup is done'
    """
    _post_decision(session, fleet, event_id, "approve", reason)


def hold(session: CommandSession, fleet: Fleet, event_id: Id, reason: Reason = "") -> None:
    """Withhold the approval of an event. Azure still starts it at NotBefore.

    Examples:
        tocsin maintenance hold web 810a5c67-9997-5cac-a82c-ef5111ba3afa --reason 'a backup runs'
    """
    _post_decision(session, fleet, event_id, "hold", reason)


def _post_decision(session: CommandSession, fleet: str, event_id: str, verb: str, reason: str) -> None:
    body = {"reason": reason} if reason else {}
    found = session.send("POST", api_path("fleets", fleet, "maintenance", "events", event_id, verb), body)
    session.print_result(found, f"event {event_id}: {found['state']}")


def rehearse(
    session: CommandSession,
    fleet: Fleet,
    nodes: Annotated[list[str], typer.Option("--node", help="Node that runs its hooks, such as s7. Repeatable.", show_default=False)],
    type_: Annotated[str, typer.Option("--type", help="Type of the event: Freeze, Reboot, Redeploy, Preempt or Terminate.")] = "Freeze",
    notice: Annotated[str, duration_option("Time from now to NotBefore, as a duration such as 5m.")] = "PT5M",
    seconds: Annotated[int, typer.Option(min=0, help="Impact that the event advertises, in seconds.")] = 9,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the nodes have caught up, and show what callers noticed.")] = False,
) -> None:
    """Run nodes' hooks as for a Scheduled Event, without Azure.

    With --wait, the exit code is 1 if the rehearsal fails: a node was not restored, a bound of the fleet's caller probe was passed, or the
    probe measured nothing.

    Examples:
        tocsin maintenance rehearse web --node s7
        tocsin maintenance rehearse web --node s7 --node s9 --wait
        tocsin maintenance rehearse web --node s7 --node s8 --type Reboot --notice 10m
    """
    body = {"nodes": nodes, "type": type_, "notice": notice, "duration_s": seconds}
    found = session.send("POST", api_path("fleets", fleet, "maintenance", "rehearse"), body)
    # A former app does not say by when.
    begins = f"{found['event_id']} begins " + (f"by {found['begins_by']}" if "begins_by" in found else f"in {notice}")
    if not wait:
        session.print_result(found, f"{begins}; follow it with: tocsin maintenance watch {fleet}")
        return
    typer.echo(f"{begins}; waiting until its nodes have caught up", err=True)
    event = _wait_for(session, api_path("fleets", fleet, "maintenance", "events", found["event_id"]))
    if session.json:
        session.emit(event)
    else:
        _show_callers(session, event)
    session.flush()
    if faults := rehearsal_faults(event):
        typer.echo(f"The rehearsal failed: {'; '.join(faults)}", err=True)
        raise typer.Exit(Exit.FAILED)


def _wait_for(session: CommandSession, path: str) -> dict[str, Any]:
    """Return an event once it is over and no agent probes for it any more."""
    event: dict[str, Any] = {}
    told: list[str] = []

    def is_over() -> bool:
        event.clear()
        event.update(session.get(path))
        waits = event.get("waits_for", [])
        for each in waits:
            if each not in told:
                typer.echo(f"It waits for {each}", err=True)
        told[:] = waits
        return event["status"] not in OPEN_STATUSES and (event.get("probe") or {}).get("verdict") != "pending"

    refresh(session, is_over, every=2.0, times=None)
    return event


def rehearsal_faults(event: Mapping[str, Any]) -> list[str]:
    """Return why a rehearsal failed, in sentences; empty for one that succeeded."""
    faults = [] if event["status"] == "completed" else [f"its status is {event['status']}, because not all of its nodes were restored"]
    faults += [f"alarm {alarm}" for alarm in event["alarms"] if alarm != "callers-affected"]
    probe = event.get("probe")
    if probe is not None:
        faults += probe["passed"]
        faults += ["the caller probe measured nothing while a node caught up"] if probe["verdict"] == "not-measured" else []
    return faults


def forget(
    session: CommandSession,
    fleet: Fleet,
    node: Annotated[str, typer.Argument(help="Node whose VM is lost, such as s7.", show_default=False)],
) -> None:
    """Forget a node whose VM is lost, so that its fault domain no longer counts as down.

    The node's agent must be silent. If it reports again, the node is back.

    Examples:
        tocsin maintenance forget web s7
    """
    session.send("POST", api_path("fleets", fleet, "maintenance", "nodes", node, "forget"))
    session.print_result({"node": node, "state": "forgotten"}, f"node {node}: forgotten")


def watch(
    session: CommandSession,
    fleet: Fleet,
    every: Annotated[float, typer.Option(min=0.1, max=MAX_INTERVAL, help="Seconds between two refreshes.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N refreshes, such as 3.")] = None,
    until_over: Annotated[bool, typer.Option("--until-over", help="Stop when an event was open and none is open any more.")] = False,
) -> None:
    """Print every change as it happens: events, phases of their nodes, approvals, alarms.

    Examples:
        tocsin maintenance watch web
        tocsin maintenance watch web --until-over --json
    """
    known: dict[str, dict[str, str]] | None = None
    begun = False

    def print_changes() -> bool:
        nonlocal known, begun
        events = list(session.items(api_path("fleets", fleet, "maintenance", "events"), limit=200))
        now = {each["event_id"]: comparable_state(each) for each in events}
        open_now = {each["event_id"] for each in events if each["status"] in OPEN_STATUSES}
        for event_id, what, before, after in changes(known or {}, now):
            # An event that had ended before this command began has not changed.
            if known is not None or event_id in open_now:
                _print_change(session, event_id, what, before, after)
        over = until_over and begun and not open_now
        known, begun = now, begun or bool(open_now)
        return over

    refresh(session, print_changes, every=every, times=times)


def _print_change(session: CommandSession, event_id: str, what: str, before: str, after: str) -> None:
    from datetime import UTC, datetime

    from ...core.clock import to_millis, to_text

    seen = to_text(to_millis(datetime.now(UTC)))
    if session.json:
        session.emit({"seen": seen, "event_id": event_id, "what": what, "before": before or None, "after": after})
        return
    session.screen.line(f"{seen}  {event_id}  {what}: {f'{before} -> ' if before else ''}{after}")


def comparable_state(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of an event that may change, each under a name."""
    approval = event["approval"]
    return {
        "event": f"{event['type']} {status_text(event)}",
        **{f"node {name}": node["phase"] for name, node in sorted(event["nodes"].items())},
        **_permission(event),
        **({"approval": f"{approval['state']} by {approval['by']}"} if approval else {}),
        **({"callers": VERDICTS.get(event["probe"]["verdict"], event["probe"]["verdict"])} if event.get("probe") else {}),
        **{f"alarm {alarm}": "raised" for alarm in event["alarms"]},
    }


def changes(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str, str]]:
    """Yield event, name of the changed part, value before ('' for none) and value after."""
    for event_id, now in after.items():
        then = before.get(event_id, {})
        for what, value in now.items():
            if then.get(what, "") != value:
                yield event_id, what, then.get(what, ""), value
        for what, value in then.items():
            if what not in now:
                yield event_id, what, value, "gone"


def status_text(event: Mapping[str, Any]) -> str:
    """Return an event's status for people. The impact of an approved event may be too short for any document to show it."""
    unseen = event["status"] == "completed" and not event["rehearsal"] and "started" not in event
    return "completed, not seen started" if unseen else str(event["status"])


def row(each: Mapping[str, Any]) -> Sequence[Any]:
    """Return an event as the row of a table."""
    phases: dict[str, int] = {}
    for node in each["nodes"].values():
        phases[node["phase"]] = phases.get(node["phase"], 0) + 1
    approval = each["approval"]["state"] if each["approval"] else None
    nodes = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    alarms = ", ".join(each["alarms"]) or None
    return each["event_id"], each["type"], status_text(each), each["not_before"], nodes, approval, alarms
