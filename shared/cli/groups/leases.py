"""`tocsin leases`: fleets, who serves which partition, and what operators say about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..session import Note, Session, Yes, at, commands, given_json
from ..terminal.output import STYLES, several, span

_HELP = "Fleets and their partitions: who serves what, and operators' verbs."
Fleet = Annotated[str, typer.Argument(help="The fleet.", show_default=False)]
Number = Annotated[int, typer.Argument(min=0, metavar="PARTITION", help="The partition.", show_default=False)]
Node = Annotated[str, typer.Argument(metavar="SERVER", help="The server.", show_default=False)]
Server = Annotated[str, typer.Option("--server", help="The server.", show_default=False)]
MaybePartition = Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition; else all of them.")]
Expires = Annotated[str | None, typer.Option("--expires", help="When it ends by itself: a time, or a duration like PT1H.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"list": list_, "show": show, "nodes": nodes, "stale": stale, "intents": intents}, watch=True)
    commands(group, {"doctor": doctor, "create": create, "resize": resize, "delete": delete, "plan": plan})
    commands(group, {"bump": bump, "offline": offline, "online": online, "pin": pin, "unpin": unpin})
    commands(group, {"prohibit": prohibit, "permit": permit, "drain": drain, "undrain": undrain})
    app.add_typer(group, name="leases")


def create(
    session: Session,
    fleet: Fleet,
    partitions: Annotated[int | None, typer.Option(min=1, help="How many; needed unless --settings says it.")] = None,
    lease_profile: Annotated[str | None, typer.Option(help="How fast others take over: economy, default, fast or seed.")] = None,
    minimum: Annotated[int | None, typer.Option(min=1, help="Servers it cannot do without.")] = None,
    spare: Annotated[int | None, typer.Option(min=0, help="Servers beside.")] = None,
    notify: Annotated[str | None, typer.Option(help="The channel that alarms go to.")] = None,
    settings: Annotated[str, typer.Option("--settings", help="The rest of the document: JSON, or @FILE.")] = "{}",
) -> None:
    """Create a fleet, or change it while it runs; what is left out gets its default."""
    body = given_json(settings, "--settings")
    if not isinstance(body, dict):
        raise CommandFailed("the settings are no object", where="--settings", status=Exit.USAGE)
    told = {"partitions": partitions, "profile": lease_profile, "notify": {"channel": notify} if notify else None}
    body |= {name: value for name, value in told.items() if value is not None}
    servers = {name: value for name, value in (("minimum", minimum), ("spare", spare)) if value is not None}
    if servers:
        body["servers"] = {**body.get("servers", {}), **servers}
    session.shown(session.send("PUT", at("fleets", fleet), body))


def list_(session: Session) -> None:
    """All fleets."""

    def row(each: dict[str, Any]) -> Sequence[Any]:
        profile = each["profile"] if isinstance(each["profile"], str) else "own"
        least = f"{each['servers']['minimum']} + {each['servers']['spare']}"
        state = "resizing" if each.get("resizing") else "ok"
        return each["name"], each["partitions"], profile, least, each["generation"], state, each["created"]

    columns = ("fleet", "partitions", "profile", "servers", "generation", "state", "created")
    session.listed(session.items("fleets"), columns, row, empty="no fleets")


def show(
    session: Session,
    fleet: Fleet,
    partition: Annotated[int | None, typer.Argument(min=0, help="Only this one.", show_default=False)] = None,
    by_server: Annotated[bool, typer.Option("--by-server", help="By server instead of by partition.")] = False,
) -> None:
    """Who has which partition."""
    if partition is not None:
        session.shown(session.get(at("fleets", fleet, "leases", partition)))
        return
    if by_server:
        found = session.items(at("fleets", fleet, "leases"), by="server")
        session.listed(found, ("server", "state", "beat", "has", "partitions"), _server_row, empty="no servers")
        return
    columns = ("partition", "state", "owner", "epoch", "since", "beat", "intents")
    session.listed(session.items(at("fleets", fleet, "leases")), columns, _lease_row, empty="no partitions")


def nodes(session: Session, fleet: Fleet) -> None:
    """The nodes: beats, partitions, turns, maintenance."""

    def row(each: dict[str, Any]) -> Sequence[Any]:
        beat, turn, care = each["beat"] or {}, each["turn"] or {}, each["maintenance"] or {}
        phases = ", ".join(sorted({told["phase"] for told in care.get("events", {}).values()}))
        said = ", ".join(intent["verb"] for intent in each["intents"])
        return (
            *(each["node"], beat.get("state"), span(beat.get("age_ms")), beat.get("fault_domain") or None, len(each["partitions"])),
            *(turn.get("role"), turn.get("skipped") or ("takes turn" if turn.get("taking") else None), phases or None, said or None),
        )

    columns = ("node", "state", "beat", "domain", "has", "role", "turn", "maintenance", "intents")
    session.listed(session.items(at("fleets", fleet, "nodes")), columns, row, empty="no nodes")


def stale(session: Session, fleet: Fleet) -> None:
    """What is wrong with a fleet: partitions without a server, too few servers, forgotten controls, alarms."""
    found = whole(session, fleet)
    if session.json:
        session.emit(found)
        return
    rows = [(each["partition"], each["reason"], each["owner"], span(each["age_ms"])) for each in found["items"]]
    session.screen.table(("partition", "reason", "had last", "for"), rows, title="partitions without a server")
    servers = found["servers"]
    session.screen.gap()
    session.screen.line(f"servers: {servers['live']} live, {servers['needed']} needed", style="bold")
    for name in ("silent", "late"):
        if servers[name]:
            session.screen.line(f"  {name}: {', '.join(servers[name])}")
    if found["forgotten"]:
        session.screen.gap()
        session.screen.table(_INTENTS, [_intent_row(each) for each in found["forgotten"]], title="forgotten controls")
    session.screen.gap()
    rows = [(each["alarm"], each["since"], each["count"], ", ".join(each["subjects"])) for each in found["alarms"]]
    session.screen.table(("alarm", "since", "count", "about"), rows, title="alarms")


def intents(session: Session, fleet: Fleet) -> None:
    """What operators have said that is in force."""
    session.listed(session.get(at("fleets", fleet, "leases", "intents"))["items"], _INTENTS, _intent_row, empty="nothing")


def plan(
    session: Session,
    fleet: Fleet,
    apply: Annotated[bool, typer.Option("--apply/--dry-run", help="Tell the servers, or only show.")] = False,
) -> None:
    """Which partitions are to move, and why."""
    found = session.send("POST", at("fleets", fleet, "leases", "plan"), {"dry_run": not apply})
    if session.json:
        session.emit(found)
        return
    moves = [(each["partition"], each["from"], each["to"], each["reason"]) for each in found["moves"]]
    session.screen.table(("partition", "from", "to", "reason"), moves, title=f"moves, {'told to the servers' if apply else 'dry run'}")
    if found["unplaced"]:
        session.screen.gap()
        reasons: dict[str, list[int]] = {}
        for each in found["unplaced"]:
            reasons.setdefault(each["reason"], []).append(each["partition"])
        rows = [(several(partitions), reason) for reason, partitions in sorted(reasons.items())]
        session.screen.table(("partitions", "reason"), rows, title="no server can have")


def resize(
    session: Session, fleet: Fleet, partitions: Annotated[int, typer.Argument(min=1, help="How many from now on.", show_default=False)]
) -> None:
    """Change a fleet's partition count while its servers run."""
    found = session.send("POST", at("fleets", fleet, "leases", "resize"), {"partitions": partitions})
    session.said(found, f"{fleet} goes to {partitions} partitions, generation {found['generation']}")


def delete(session: Session, fleet: Fleet, yes: Yes = False) -> None:
    """End a fleet; only while no server of it lives."""
    session.confirm(f"Delete the fleet {fleet}", yes)
    session.send("DELETE", at("fleets", fleet))
    session.said({"fleet": fleet, "deleted": True}, f"fleet {fleet} is deleted")


def bump(
    session: Session,
    fleet: Fleet,
    partition: Number,
    note: Note,
    server: Annotated[str | None, typer.Option("--server", help="Is prohibited for it, too: so another claims it.")] = None,
    expires: Expires = None,
) -> None:
    """Reload a partition: its server hands it off, and it is claimed anew."""
    _say(session, at("fleets", fleet, "leases", partition, "bump"), note, server=server, expires=expires)


def offline(session: Session, fleet: Fleet, partition: Number, note: Note, expires: Expires = None) -> None:
    """Take a partition offline: nobody claims it."""
    _say(session, at("fleets", fleet, "leases", partition, "offline"), note, expires=expires)


def online(session: Session, fleet: Fleet, partition: Number, note: Note) -> None:
    """Bring a partition back online."""
    _say(session, at("fleets", fleet, "leases", partition, "online"), note)


def pin(session: Session, fleet: Fleet, partition: Number, server: Server, note: Note, expires: Expires = None) -> None:
    """Keep a partition on one server."""
    _say(session, at("fleets", fleet, "leases", partition, "pin"), note, server=server, expires=expires)


def unpin(session: Session, fleet: Fleet, partition: Number, note: Note) -> None:
    """Let a pinned partition go where the plan puts it."""
    _say(session, at("fleets", fleet, "leases", partition, "unpin"), note)


def prohibit(
    session: Session, fleet: Fleet, server: Server, note: Note, partition: MaybePartition = None, expires: Expires = None
) -> None:
    """Keep a server from having a partition, or any."""
    if partition is None:
        _say(session, at("fleets", fleet, "nodes", server, "prohibit"), note, expires=expires)
    else:
        _say(session, at("fleets", fleet, "leases", partition, "prohibit"), note, server=server, expires=expires)


def permit(session: Session, fleet: Fleet, server: Server, note: Note, partition: MaybePartition = None) -> None:
    """Take a prohibition back."""
    if partition is None:
        _say(session, at("fleets", fleet, "nodes", server, "permit"), note)
    else:
        _say(session, at("fleets", fleet, "leases", partition, "permit"), note, server=server)


def drain(
    session: Session,
    fleet: Fleet,
    server: Node,
    note: Note,
    ends: Annotated[bool, typer.Option("--exit", help="Its process is told to end, too.")] = False,
    expires: Expires = None,
) -> None:
    """Have a server hand everything off."""
    _say(session, at("fleets", fleet, "nodes", server, "drain"), note, expires=expires, exit=ends or None)


def undrain(session: Session, fleet: Fleet, server: Node, note: Note) -> None:
    """Let a drained server have partitions again."""
    _say(session, at("fleets", fleet, "nodes", server, "undrain"), note)


def doctor(session: Session, fleet: Fleet) -> None:
    """Look a fleet over: what is wrong, what that means, and the command to run next. Ends with 1 where something is bad."""
    from ..doctor import Look, examine

    found = session.get(at("fleets", fleet))
    look = Look(
        fleet=found,
        stale=whole(session, fleet),
        nodes=list(session.items(at("fleets", fleet, "nodes"))),
        intents=session.get(at("fleets", fleet, "leases", "intents"))["items"],
        plan=session.send("POST", at("fleets", fleet, "leases", "plan"), {"dry_run": True}),
    )
    findings = examine(look)
    if session.json:
        for each in findings:
            session.emit(each._asdict())
    elif not findings:
        session.screen.line(f"nothing is wrong with {fleet}", style="dim")
    else:
        for number, each in enumerate(findings):
            if number:
                session.screen.gap()
            session.screen.line(f"{each.how}: {each.what}", style=STYLES[each.how])
            session.screen.fields({"  means": each.means, "  do": each.do})
    if any(each.how == "bad" for each in findings):
        raise typer.Exit(Exit.FAILED)


def whole(session: Session, fleet: str) -> dict[str, Any]:
    """`leases/stale` with all its pages in one."""
    path = at("fleets", fleet, "leases", "stale")
    found: dict[str, Any] = session.get(path, limit=1000)
    cursor = found["next"]
    while cursor is not None:
        page = session.get(path, limit=1000, cursor=cursor)
        found["items"] += page["items"]
        cursor = page["next"]
    return {**found, "next": None}


def _say(session: Session, path: str, note: str, **more: Any) -> None:
    body = {"note": note} | {name: value for name, value in more.items() if value is not None}
    intent = session.send("POST", path, body)["intent"]
    about = f" for {intent['server']}" if intent.get("server") else ""
    until = f", until {intent['expires']}" if intent["expires"] else ""
    session.said({"intent": intent}, f"{intent['verb']} {intent['target']}{about}: counts with the servers' next beat{until}")


_INTENTS = ("verb", "target", "server", "note", "by", "since", "expires")


def _intent_row(each: dict[str, Any]) -> Sequence[Any]:
    return each["verb"], each["target"], each.get("server"), each["note"], each["author"], each["created"], each["expires"]


def _lease_row(each: dict[str, Any]) -> Sequence[Any]:
    said = ", ".join(intent["verb"] for intent in each["intents"])
    return each["partition"], each["state"], each["owner"], each["epoch"], each["since"], span(each["beat_age_ms"]), said or None


def _server_row(each: dict[str, Any]) -> Sequence[Any]:
    return each["server"], each["state"], span(each["beat_age_ms"]), len(each["partitions"]), several(each["partitions"])
