"""`tocsin turns`: who takes a checkpoint, and who did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..session import Note, Session, at, commands
from ..terminal.output import span

_HELP = "Checkpoint turns of a fleet's replicas."
Fleet = Annotated[str, typer.Argument(help="The fleet.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"list": list_}, watch=True)
    commands(group, {"latest": latest, "revoke": revoke, "forget": forget})
    app.add_typer(group, name="turns")


def list_(session: Session, fleet: Fleet, limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="How many.")] = 20) -> None:
    """Turns, newest first."""
    columns = ("epoch", "holder", "state", "why", "granted", "time-out", "sequence", "note")
    session.listed(session.items(at("fleets", fleet, "turns"), limit=limit), columns, _row, empty="no turns yet")


def latest(session: Session, fleet: Fleet) -> None:
    """The published checkpoint with the highest sequence."""
    session.shown(session.get(at("fleets", fleet, "checkpoints", "latest")))


def revoke(session: Session, fleet: Fleet, epoch: Annotated[int, typer.Argument(min=1, show_default=False)], note: Note) -> None:
    """Take a turn back: nothing can be published for it from here on."""
    found = session.send("POST", at("fleets", fleet, "turns", epoch, "revoke"), {"note": note}, repeatable=True)
    session.said(found, f"turn {epoch} is revoked; the next can be granted within {span(found['free_after_ms'])}")


def forget(session: Session, fleet: Fleet, note: Note) -> None:
    """Take back the highest claim to be primary, for one made by mistake: put the replica that made it right first. Frees no turn."""
    session.send("POST", at("fleets", fleet, "primary", "forget"), {"note": note}, repeatable=True)
    told = f"the highest claim to be primary of {fleet} is forgotten: the next one counts, of any term"
    session.said({"fleet": fleet, "forgotten": True}, told)


def _row(each: dict[str, Any]) -> Sequence[Any]:
    why = each.get("reason") or ("late" if each.get("late") else None)
    return (
        *(each["epoch"], each["holder"], each["state"], why, each["granted"]),
        *(span(each["timeout_ms"]), each["sequence"], each.get("note")),
    )
