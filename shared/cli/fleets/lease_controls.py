"""The manual controls of `tocsin leases`: an operator's verbs on partitions and servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ...core.readable import count_of
from ..commands import Note, add_commands
from ..session import CommandSession, api_path
from ..terminal.times import time_or_duration_option

_BUMP_SERVER_HELP = "Also prohibit this server for the partition, so that another server claims it."
Fleet = Annotated[str, typer.Argument(help="Name of the fleet, such as web.", show_default=False)]
PartitionArgument = Annotated[
    int, typer.Argument(min=0, metavar="PARTITION", help="Number of the partition, such as 7.", show_default=False)
]
ServerArgument = Annotated[str, typer.Argument(metavar="SERVER", help="Name of the server, such as s7.", show_default=False)]
Server = Annotated[str, typer.Option("--server", help="Name of the server, such as s7.", show_default=False)]
MaybePartition = Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition, such as 7. Default: all of them.")]
Expires = Annotated[str | None, time_or_duration_option("End the control at 21:30, for example, or after 1h. Default: never.", "--expires")]

CONTROL_COLUMNS = ("verb", "target", "server", "note", "by", "since", "expires")


def register_controls(group: typer.Typer) -> None:
    """Add the verbs."""
    add_commands(group, {"bump": bump, "offline": offline, "online": online, "pin": pin, "unpin": unpin})
    add_commands(group, {"prohibit": prohibit, "permit": permit, "drain": drain, "undrain": undrain})


def bump(
    session: CommandSession,
    fleet: Fleet,
    partition: PartitionArgument,
    note: Note,
    server: Annotated[str | None, typer.Option("--server", help=_BUMP_SERVER_HELP)] = None,
    expires: Expires = None,
) -> None:
    """Reload a partition: its server hands it off, and a server claims it again.

    Examples:
        tocsin leases bump web 7 --note 'reload its data'
        tocsin leases bump web 7 --server s7 --expires 1h --note 's7 is slow'
    """
    _post_control(session, api_path("fleets", fleet, "leases", partition, "bump"), note, server=server, expires=expires)


def offline(session: CommandSession, fleet: Fleet, partition: PartitionArgument, note: Note, expires: Expires = None) -> None:
    """Take a partition offline: no server claims it.

    Examples:
        tocsin leases offline web 7 --note 'its data is corrupt' --expires 1h
    """
    _post_control(session, api_path("fleets", fleet, "leases", partition, "offline"), note, expires=expires)


def online(session: CommandSession, fleet: Fleet, partition: PartitionArgument, note: Note) -> None:
    """Bring an offline partition back, so that servers claim it.

    Examples:
        tocsin leases online web 7 --note 'its data is restored'
    """
    _post_control(session, api_path("fleets", fleet, "leases", partition, "online"), note)


def pin(session: CommandSession, fleet: Fleet, partition: PartitionArgument, server: Server, note: Note, expires: Expires = None) -> None:
    """Keep a partition on one server.

    Examples:
        tocsin leases pin web 7 --server s7 --note 'its cache is warm' --expires 2h
    """
    _post_control(session, api_path("fleets", fleet, "leases", partition, "pin"), note, server=server, expires=expires)


def unpin(session: CommandSession, fleet: Fleet, partition: PartitionArgument, note: Note) -> None:
    """Let the plan place a pinned partition again.

    Examples:
        tocsin leases unpin web 7 --note 'the test is over'
    """
    _post_control(session, api_path("fleets", fleet, "leases", partition, "unpin"), note)


def prohibit(
    session: CommandSession, fleet: Fleet, server: Server, note: Note, partition: MaybePartition = None, expires: Expires = None
) -> None:
    """Prohibit a server from owning one partition, or any partition.

    Examples:
        tocsin leases prohibit web --server s7 --note 'a slow disk'
        tocsin leases prohibit web --server s7 --partition 7 --expires 1h --note 'too little memory'
    """
    if partition is None:
        _post_control(session, api_path("fleets", fleet, "nodes", server, "prohibit"), note, expires=expires)
    else:
        _post_control(session, api_path("fleets", fleet, "leases", partition, "prohibit"), note, server=server, expires=expires)


def permit(session: CommandSession, fleet: Fleet, server: Server, note: Note, partition: MaybePartition = None) -> None:
    """Remove a prohibition of a server.

    Examples:
        tocsin leases permit web --server s7 --note 'a new disk'
        tocsin leases permit web --server s7 --partition 7 --note 'more memory'
    """
    if partition is None:
        _post_control(session, api_path("fleets", fleet, "nodes", server, "permit"), note)
    else:
        _post_control(session, api_path("fleets", fleet, "leases", partition, "permit"), note, server=server)


def drain(
    session: CommandSession,
    fleet: Fleet,
    server: ServerArgument,
    note: Note,
    to: Annotated[
        str | None, typer.Option("--to", metavar="SERVER", help="Server that gets the partitions. Its own drain ends. Default: all others.")
    ] = None,
    ends: Annotated[bool, typer.Option("--exit", help="Also ask the server's process to end.")] = False,
    expires: Expires = None,
) -> None:
    """Drain a server: it hands off all its partitions and gets no others.

    Examples:
        tocsin leases drain web s7 --note 'a new disk' --expires 2h
        tocsin leases drain web s7 --exit --note 'the machine is replaced'
        tocsin leases drain web s8 --to s7 --note 'rolling restart: s7 is back'
    """
    _post_control(session, api_path("fleets", fleet, "nodes", server, "drain"), note, expires=expires, exit=ends or None, to=to)


def undrain(session: CommandSession, fleet: Fleet, server: ServerArgument, note: Note) -> None:
    """Let a drained server own partitions again.

    Examples:
        tocsin leases undrain web s7 --note 'the disk is replaced'
    """
    _post_control(session, api_path("fleets", fleet, "nodes", server, "undrain"), note)


def _post_control(session: CommandSession, path: str, note: str, **more: Any) -> None:
    body = {"note": note} | {name: value for name, value in more.items() if value is not None}
    answer = session.send("POST", path, body)
    intent = answer["intent"]
    about = f" for {intent['server']}" if intent.get("server") else f" to {intent['to']}" if intent.get("to") else ""
    until = f", until {intent['expires']}" if intent["expires"] else ""
    text = f"{intent['verb']} {intent['target']}{about}: takes effect with each server's next heartbeat{until}"
    for ended in answer.get("ended", ()):
        text += f"; {ended['verb']} {ended['target']} has ended"
    diverted = Counter(each["reason"] for each in answer.get("diverted", ()))
    for reason, count in sorted(diverted.items()):
        text += f"; {count_of(count, 'partition')} cannot go to {intent['to']} ({reason}) and {'goes' if count == 1 else 'go'} elsewhere"
    session.print_result(answer, text)


def control_row(each: dict[str, Any]) -> Sequence[Any]:
    """Return the cells of a control, by `CONTROL_COLUMNS`."""
    return (
        each["verb"],
        each["target"],
        each.get("server") or each.get("to"),
        each["note"],
        each["author"],
        each["created"],
        each["expires"],
    )
