"""`tocsin turns`: turns to take a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..commands import Note, add_commands
from ..session import CommandSession, api_path
from ..terminal.output import duration_text

_HELP = "List and revoke checkpoint turns of a fleet's replicas."
Fleet = Annotated[str, typer.Argument(help="Name of the fleet, such as web.", show_default=False)]
Epoch = Annotated[int, typer.Argument(min=1, help="Epoch of the turn, such as 8. tocsin turns list shows it.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"list": list_}, watch=True)
    add_commands(group, {"latest": latest, "revoke": revoke, "forget": forget})
    app.add_typer(group, name="turns")


def list_(
    session: CommandSession,
    fleet: Fleet,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of turns to list.")] = 20,
) -> None:
    """List checkpoint turns, newest first.

    Examples:
        tocsin turns list web
        tocsin turns list web --watch 5
    """
    columns = ("epoch", "holder", "state", "why", "granted", "time-out", "sequence", "note")
    session.print_list(session.items(api_path("fleets", fleet, "turns"), limit=limit), columns, _row, empty="no turns yet")


def latest(session: CommandSession, fleet: Fleet) -> None:
    """Show the published checkpoint with the highest sequence.

    Examples:
        tocsin turns latest web
    """
    session.print_document(session.get(api_path("fleets", fleet, "checkpoints", "latest")))


def revoke(session: CommandSession, fleet: Fleet, epoch: Epoch, note: Note) -> None:
    """Revoke a turn. From then on, no checkpoint can be published for it.

    Examples:
        tocsin turns revoke web 8 --note 'its disk is full'
    """
    found = session.send("POST", api_path("fleets", fleet, "turns", epoch, "revoke"), {"note": note}, repeatable=True)
    free = duration_text(found["free_after_ms"])
    session.print_result(found, f"turn {epoch} is revoked; the next turn can be granted within {free}")


def forget(session: CommandSession, fleet: Fleet, note: Note) -> None:
    """Forget a replica's mistaken claim to be primary: the highest one.

    Correct the replica that made the claim first. The command does not free a turn.

    Examples:
        tocsin turns forget web --note 'a test claimed term 999'
    """
    session.send("POST", api_path("fleets", fleet, "primary", "forget"), {"note": note}, repeatable=True)
    text = f"the highest claim to be primary of {fleet} is forgotten; the next claim counts, with any term"
    session.print_result({"fleet": fleet, "forgotten": True}, text)


def _row(each: dict[str, Any]) -> Sequence[Any]:
    why = each.get("reason") or ("late" if each.get("late") else None)
    return (
        *(each["epoch"], each["holder"], each["state"], why, each["granted"]),
        *(duration_text(each["timeout_ms"]), each["sequence"], each.get("note")),
    )
