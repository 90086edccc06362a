"""`tocsin leases`: fleets, the owners of their partitions, and manual controls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...core.readable import count_of
from ..commands import Yes, add_commands
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, api_path, parse_json_option, read_if_allowed
from ..terminal.output import duration_text, ranges_text
from .lease_controls import CONTROL_COLUMNS, Fleet, control_row, register_controls

if TYPE_CHECKING:
    from ..findings import Finding

_HELP = "Manage fleets and their partitions: owners, plans and manual controls."
_COUNT_HELP = "Number of partitions, such as 64. Needed unless --settings gives it."
_LEASE_PROFILE_HELP = "Lease timing, which decides how fast other servers take over: economy, default, fast or seed."


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(
        group, {"overview": overview, "fleets": fleets, "show": show, "nodes": nodes, "stale": stale, "intents": intents}, watch=True
    )
    add_commands(group, {"doctor": doctor, "create": create, "resize": resize, "delete": delete, "plan": plan})
    register_controls(group)
    app.add_typer(group, name="leases")


def create(
    session: CommandSession,
    fleet: Fleet,
    partitions: Annotated[int | None, typer.Option(min=1, help=_COUNT_HELP)] = None,
    lease_profile: Annotated[str | None, typer.Option(help=_LEASE_PROFILE_HELP)] = None,
    minimum: Annotated[int | None, typer.Option(min=1, help="Servers that the fleet needs at least, such as 2.")] = None,
    spare: Annotated[int | None, typer.Option(min=0, help="Servers wanted in addition to the minimum, such as 1.")] = None,
    notify: Annotated[str | None, typer.Option(help="Channel that the fleet's alarms are delivered to, such as default.")] = None,
    settings: Annotated[str, typer.Option("--settings", help="Further settings as JSON, such as '{\"partitions\": 64}', or @FILE.")] = "{}",
) -> None:
    """Create a fleet, or change its settings while it runs. A setting that is left out gets its default.

    Examples:
        tocsin leases create web --partitions 64 --minimum 2 --spare 1
        tocsin leases create web --settings @fleet.json
    """
    body = parse_json_option(settings, "--settings")
    if not isinstance(body, dict):
        advice = """For example: --settings '{"partitions": 64}'"""
        raise CommandFailed("the settings are not a JSON object", where="--settings", advice=advice, status=Exit.USAGE)
    given = {"partitions": partitions, "profile": lease_profile, "notify": {"channel": notify} if notify else None}
    body |= {name: value for name, value in given.items() if value is not None}
    servers = {name: value for name, value in (("minimum", minimum), ("spare", spare)) if value is not None}
    if servers:
        body["servers"] = {**body.get("servers", {}), **servers}
    session.print_document(session.send("PUT", api_path("fleets", fleet), body))


def overview(session: CommandSession) -> None:
    """List the fleets that need a person, the most urgent first, and count the others.

    Examples:
        tocsin leases overview
        tocsin leases overview --watch 10
    """
    first = found = session.get("fleet-overview", limit=1000)
    items = list(first["items"])
    while found["next"] is not None:
        found = session.get("fleet-overview", limit=1000, cursor=found["next"])
        items += found["items"]

    def row(each: dict[str, Any]) -> Sequence[Any]:
        return each["fleet"], each["urgency"], ", ".join(map(_need, each["needs"])), each["open_events"] or None, each["agents"] or None

    fleets, concerned = count_of(first["fleets"], "fleet"), first["fleets"] - first["quiet"]
    title = f"{fleets}: {concerned:,} {'needs' if concerned == 1 else 'need'} attention, {first['quiet']:,} quiet"
    columns = ("fleet", "urgency", "needs", "open events", "agents")
    session.print_list(items, columns, row, empty=f"{fleets}: none needs attention", title=title)


def _need(need: dict[str, Any]) -> str:
    names = f" ({', '.join(need['subjects'][:3])})" if need["subjects"] else ""
    return f"{need['text']}{names}"


def fleets(session: CommandSession) -> None:
    """List all fleets.

    Examples:
        tocsin leases fleets
        tocsin leases fleets --json
    """

    def row(each: dict[str, Any]) -> Sequence[Any]:
        profile = each["profile"] if isinstance(each["profile"], str) else "own"
        least = f"{each['servers']['minimum']} + {each['servers']['spare']}"
        state = "resizing" if each.get("resizing") else "ok"
        return each["name"], each["partitions"], profile, least, each["generation"], state, each["created"]

    columns = ("fleet", "partitions", "profile", "servers", "generation", "state", "created")
    session.print_list(session.items("fleets"), columns, row, empty="no fleets")


def show(
    session: CommandSession,
    fleet: Fleet,
    partition: Annotated[int | None, typer.Argument(min=0, help="Only this partition, such as 7.", show_default=False)] = None,
    by_server: Annotated[bool, typer.Option("--by-server", help="List servers with their partitions.")] = False,
) -> None:
    """Show the owner of each partition, and its load if the owner publishes it.

    Examples:
        tocsin leases show web
        tocsin leases show web --by-server --watch 5
    """
    if partition is not None:
        session.print_document(session.get(api_path("fleets", fleet, "leases", partition)))
        return
    if by_server:
        found = session.items(api_path("fleets", fleet, "leases"), by="server")
        _print_loads(session, found, ("server", "state", "beat", "has", "load", "partitions"), _server_row, empty="no servers")
        return
    columns = ("partition", "state", "owner", "epoch", "since", "beat", "load", "intents")
    _print_loads(session, session.items(api_path("fleets", fleet, "leases")), columns, _lease_row, empty="no partitions")


def nodes(session: CommandSession, fleet: Fleet) -> None:
    """List the nodes: age of the last heartbeat, partitions and their load, checkpoint turns, maintenance.

    Examples:
        tocsin leases nodes web
        tocsin leases nodes web --watch 2
    """

    def row(each: dict[str, Any]) -> Sequence[Any]:
        beat, turn, care = each["beat"] or {}, each["turn"] or {}, each["maintenance"] or {}
        phases = ", ".join(sorted({event["phase"] for event in care.get("events", {}).values()}))
        verbs = ", ".join(intent["verb"] for intent in each["intents"])
        return (
            *(each["node"], beat.get("state"), duration_text(beat.get("age_ms"))),
            *(beat.get("fault_domain") or None, len(each["partitions"])),
            _load_text(sum(each["loads"].values()) if each.get("loads") else None),
            *(turn.get("role"), turn.get("skipped") or ("takes turn" if turn.get("taking") else None), phases or None, verbs or None),
        )

    columns = ("node", "state", "beat", "domain", "has", "load", "role", "turn", "maintenance", "intents")
    _print_loads(session, session.items(api_path("fleets", fleet, "nodes")), columns, row, empty="no nodes")


def stale(session: CommandSession, fleet: Fleet) -> None:
    """Show the faults of a fleet: partitions without a server, too few servers, forgotten manual controls, alarms.

    Examples:
        tocsin leases stale web
        tocsin leases stale web --watch 10
    """
    found = read_all_pages(session, fleet)
    if session.json:
        session.emit(found)
        return
    rows = [(each["partition"], each["reason"], each["owner"], duration_text(each["age_ms"])) for each in found["items"]]
    session.screen.table(("partition", "reason", "last owner", "for"), rows, title="partitions without a server")
    servers = found["servers"]
    session.screen.gap()
    session.screen.line(f"servers: {servers['live']} live, {servers['needed']} needed", style="bold")
    for name in ("silent", "late"):
        if servers[name]:
            session.screen.line(f"  {name}: {', '.join(servers[name])}")
    if found["forgotten"]:
        session.screen.gap()
        session.screen.table(CONTROL_COLUMNS, [control_row(each) for each in found["forgotten"]], title="manual controls older than a day")
    session.screen.gap()
    rows = [(each["alarm"], each["since"], each["count"], ", ".join(each["subjects"])) for each in found["alarms"]]
    session.screen.table(("alarm", "since", "count", "about"), rows, title="alarms")


def intents(session: CommandSession, fleet: Fleet) -> None:
    """List the manual controls in force, which the API calls intents.

    Examples:
        tocsin leases intents web
    """
    found = session.get(api_path("fleets", fleet, "leases", "intents"))["items"]
    session.print_list(found, CONTROL_COLUMNS, control_row, empty="no manual controls")


def plan(
    session: CommandSession,
    fleet: Fleet,
    apply: Annotated[bool, typer.Option("--apply/--dry-run", help="Send the plan to the servers, or only show it.")] = False,
) -> None:
    """Show which partitions should move to which server, and why.

    Examples:
        tocsin leases plan web
        tocsin leases plan web --apply
    """
    found = session.send("POST", api_path("fleets", fleet, "leases", "plan"), {"dry_run": not apply})
    if session.json:
        session.emit(found)
        return
    moves = [(each["partition"], each["from"], each["to"], each["reason"]) for each in found["moves"]]
    session.screen.table(("partition", "from", "to", "reason"), moves, title=f"moves, {'sent to the servers' if apply else 'dry run'}")
    titles = {"unplaced": "partitions that no server can have", "diverted": "partitions that do not go to their drain's destination"}
    for part, title in titles.items():
        if not found.get(part):
            continue
        session.screen.gap()
        reasons: dict[str, list[int]] = {}
        for each in found[part]:
            reasons.setdefault(each["reason"], []).append(each["partition"])
        rows = [(ranges_text(partitions), reason) for reason, partitions in sorted(reasons.items())]
        session.screen.table(("partitions", "reason"), rows, title=title)


def resize(
    session: CommandSession,
    fleet: Fleet,
    partitions: Annotated[int, typer.Argument(min=1, help="New number of partitions, such as 128.", show_default=False)],
) -> None:
    """Change the number of partitions of a fleet while its servers run.

    Examples:
        tocsin leases resize web 128
    """
    found = session.send("POST", api_path("fleets", fleet, "leases", "resize"), {"partitions": partitions})
    session.print_result(found, f"{fleet} changes to {count_of(partitions, 'partition')}, generation {found['generation']}")


def delete(session: CommandSession, fleet: Fleet, yes: Yes = False) -> None:
    """Delete a fleet. The app refuses while a server of the fleet is live.

    Examples:
        tocsin leases delete web --yes
    """
    session.confirm(f"Delete the fleet {fleet}", yes)
    session.send("DELETE", api_path("fleets", fleet))
    session.print_result({"fleet": fleet, "deleted": True}, f"fleet {fleet} is deleted")


def doctor(session: CommandSession, fleet: Fleet) -> None:
    """Examine a fleet: list what is wrong, what that means, and the command to run next.

    The exit code is 1 if a finding is bad.

    Examples:
        tocsin leases doctor web
        tocsin leases doctor web --json
    """
    from ..findings import print_findings

    findings = examine(session, fleet)
    print_findings(session, findings, f"nothing is wrong with {fleet}")
    if any(each.how == "bad" for each in findings):
        raise typer.Exit(Exit.FAILED)


def examine(session: CommandSession, fleet: str) -> list[Finding]:
    """Return the findings about a fleet."""
    from ..doctor.fleet import FleetReport, examine_fleet

    found = session.get(api_path("fleets", fleet))
    plan, denied = read_if_allowed(lambda: session.send("POST", api_path("fleets", fleet, "leases", "plan"), {"dry_run": True}))
    report = FleetReport(
        fleet=found,
        stale=read_all_pages(session, fleet),
        nodes=list(session.items(api_path("fleets", fleet, "nodes"))),
        intents=session.get(api_path("fleets", fleet, "leases", "intents"))["items"],
        plan=plan or {"unplaced": []},
        denied=denied,
    )
    return examine_fleet(report)


def read_all_pages(session: CommandSession, fleet: str) -> dict[str, Any]:
    """Return `leases/stale` with the items of all its pages."""
    path = api_path("fleets", fleet, "leases", "stale")
    found: dict[str, Any] = session.get(path, limit=1000)
    cursor = found["next"]
    while cursor is not None:
        page = session.get(path, limit=1000, cursor=cursor)
        found["items"] += page["items"]
        cursor = page["next"]
    return {**found, "next": None}


def _lease_row(each: dict[str, Any]) -> Sequence[Any]:
    verbs = ", ".join(intent["verb"] for intent in each["intents"])
    beat = duration_text(each["beat_age_ms"])
    return each["partition"], each["state"], each["owner"], each["epoch"], each["since"], beat, _load_text(each.get("load")), verbs or None


def _server_row(each: dict[str, Any]) -> Sequence[Any]:
    beat = duration_text(each["beat_age_ms"])
    return each["server"], each["state"], beat, len(each["partitions"]), _load_text(each.get("load")), ranges_text(each["partitions"])


def _print_loads(
    session: CommandSession, items: Iterable[Any], columns: Sequence[str], row: Callable[[Any], Sequence[Any]], *, empty: str
) -> None:
    """Print a list with a column `load`, which is left out if no item has a load: most fleets publish none."""
    at = columns.index("load")
    if not session.json:
        items = list(items)
        if all(row(each)[at] is None for each in items):
            session.print_list(items, _without(columns, at), lambda each: _without(row(each), at), empty=empty)
            return
    session.print_list(items, columns, row, empty=empty)


def _without(cells: Sequence[Any], at: int) -> Sequence[Any]:
    return (*cells[:at], *cells[at + 1 :])


def _load_text(load: float | None) -> str | None:
    """Return a load with four digits; None for a partition without a load."""
    return None if load is None else f"{float(f'{load:.4g}'):.15g}"
