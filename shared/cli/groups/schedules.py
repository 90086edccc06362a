"""`tocsin schedules`: events that recur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..session import Session, Yes, at, commands, given_json

_HELP = "Recurring schedules: cron and every, in any time zone."
Id = Annotated[str, typer.Argument(help="The schedule's id.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    commands(group, {"list": list_}, watch=True)
    commands(group, {"put": put, "get": get, "preview": preview, "trigger": trigger, "pause": pause, "resume": resume, "delete": delete})
    app.add_typer(group, name="schedules")


def put(
    session: Session,
    id: Id,
    payload: Annotated[str, typer.Option(help="JSON, or @FILE.")] = "{}",
    cron: Annotated[str | None, typer.Option(help="Five fields, or @daily and the like.")] = None,
    every: Annotated[str | None, typer.Option(help="A duration, PT15M.")] = None,
    timezone: Annotated[str | None, typer.Option(help="For --cron: Europe/Berlin.")] = None,
    start: Annotated[str | None, typer.Option(help="No occurrence before this time.")] = None,
    end: Annotated[str | None, typer.Option(help="None from this time on.")] = None,
    jitter: Annotated[str | None, typer.Option(help="Spread over this duration.")] = None,
    catch_up: Annotated[str | None, typer.Option(help="What was missed: none, last or all.")] = None,
    within: Annotated[str | None, typer.Option(help="With --catch-up: not older than this duration.")] = None,
    channel: Annotated[str | None, typer.Option(help="Where to.")] = None,
) -> None:
    """Create a schedule, or replace it."""
    if (cron is None) == (every is None):
        raise CommandFailed("give one of --cron and --every", status=Exit.USAGE)
    if within is not None and catch_up is None:
        raise CommandFailed("--within goes with --catch-up", where="--within", status=Exit.USAGE)
    told: dict[str, Any] = {"cron": cron, "every": every, "timezone": timezone, "start": start, "end": end, "jitter": jitter}
    told |= {"channel": channel, "catch_up": {"policy": catch_up, **({"within": within} if within else {})} if catch_up else None}
    body = {name: value for name, value in told.items() if value is not None} | {"payload": given_json(payload, "--payload")}
    session.shown(session.send("PUT", at("schedules", id), body))


def get(session: Session, id: Id) -> None:
    """One schedule."""
    session.shown(session.get(at("schedules", id)))


def list_(session: Session) -> None:
    """All of them."""
    found = session.items("schedules")
    session.listed(found if session.json else sorted(found, key=lambda each: each["id"]), _COLUMNS, _row, empty="no schedules")


def delete(session: Session, id: Id, yes: Yes = False) -> None:
    """Remove a schedule: what is still to come is not delivered."""
    session.confirm(f"Delete the schedule {id}", yes)
    session.send("DELETE", at("schedules", id))
    session.said({"id": id, "deleted": True}, f"schedule {id} is deleted")


def pause(session: Session, id: Id) -> None:
    """Fire nothing until it is resumed; what is missed meanwhile never fires."""
    session.shown(session.send("POST", at("schedules", id, "pause")))


def resume(session: Session, id: Id) -> None:
    """Let it go on."""
    session.shown(session.send("POST", at("schedules", id, "resume")))


def trigger(session: Session, id: Id) -> None:
    """Fire once more, now."""
    made = session.send("POST", at("schedules", id, "trigger"))
    session.said(made, f"event {made['id']} is due at {made['due']}")


def preview(session: Session, id: Id, n: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many.")] = 10) -> None:
    """The next occurrences, without jitter."""
    found = session.get(at("schedules", id, "preview"), n=n)["items"]
    columns = ("at", "local", "reason")
    session.listed(found, columns, lambda each: [each.get(name) for name in columns], empty="nothing is to come")


_COLUMNS = ("id", "recurs", "state", "next", "channel")


def _row(each: dict[str, Any]) -> Sequence[Any]:
    return each["id"], _rhythm(each), "paused" if each.get("paused") else "ok", each.get("next"), each.get("channel")


def _rhythm(schedule: dict[str, Any]) -> str:
    if schedule.get("cron"):
        return f"{schedule['cron']} {schedule.get('timezone') or 'UTC'}"
    return f"every {schedule.get('every')}"
