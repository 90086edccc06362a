"""`tocsin schedules`: events that recur."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from ...core.readable import count_of
from ...scheduler.recurring.cron_dialects import Dialect, rewritten
from ..commands import Yes, add_commands
from ..events.fanouts import Channels, channel_fields
from ..events.options import ContentType, Retry, Timeout, terms_of
from ..exits import Exit
from ..failures import CommandFailed
from ..session import CommandSession, api_path, parse_payload
from ..terminal.times import duration_option, time_option

_HELP = "Manage recurring schedules: cron expressions and fixed intervals, in any time zone."
_CRON_HELP = "Cron expression, such as '30 2 * * *', '0 18 LW * *' (last weekday) or '0 9 * * FRI#2'; six fields begin with the second."
_DIALECT_HELP = "Scheduler from which the --cron expression comes; it is rewritten. Quartz, for example, counts weekdays from Sunday = 1."
_OVERLAP_HELP = "An occurrence that is due before the last one has ended is delivered (allow), left out (skip), or waits (queue)."
_ONCE_HELP = "Only the first occurrence in each hour, day, week or month counts."
_WITHIN_HELP = "With --catch-up: skip occurrences missed longer ago than this duration, such as 1h."
Id = Annotated[str, typer.Argument(help="Id of the schedule, such as nightly.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"list": list_}, watch=True)
    add_commands(group, {"put": put, "get": get, "preview": preview, "trigger": trigger})
    add_commands(group, {"pause": pause, "resume": resume, "delete": delete, "backfill": backfill})
    calendars = typer.Typer(no_args_is_help=True, help="Manage calendars: dates on which schedules that name them do not occur.")
    add_commands(calendars, {"list": list_calendars, "put": put_calendar, "delete": delete_calendar})
    group.add_typer(calendars, name="calendars")
    app.add_typer(group, name="schedules")


def put(
    session: CommandSession,
    id: Id,
    payload: Annotated[
        str | None, typer.Option(help="Payload of each event as JSON, such as '{\"job\": 1}'; @FILE reads a file. Default: {}.")
    ] = None,
    cron: Annotated[str | None, typer.Option(help=_CRON_HELP)] = None,
    every: Annotated[str | None, duration_option("Interval between occurrences, as a duration such as 15m.")] = None,
    dialect: Annotated[Literal["unix", "quartz", "spring", "cron4j"] | None, typer.Option(help=_DIALECT_HELP)] = None,
    timezone: Annotated[str | None, typer.Option(help="Time zone for --cron, such as Europe/Berlin. Default: UTC.")] = None,
    start: Annotated[str | None, time_option("No occurrence before this time, such as 2026-11-21T00:00:00Z.")] = None,
    end: Annotated[str | None, time_option("No occurrence at this time or later, such as 2027-01-01T00:00:00Z.")] = None,
    jitter: Annotated[str | None, duration_option("Spread occurrences over this duration, such as 1m.")] = None,
    catch_up: Annotated[Literal["none", "last", "all"] | None, typer.Option(help="Occurrences to fire after an outage.")] = None,
    within: Annotated[str | None, duration_option(_WITHIN_HELP)] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A date without occurrences, such as 2026-12-24. Repeatable.")] = None,
    calendar: Annotated[list[str] | None, typer.Option(help="A calendar whose dates have no occurrences. Repeatable.")] = None,
    at_most_once_per: Annotated[Literal["hour", "day", "week", "month"] | None, typer.Option(help=_ONCE_HELP)] = None,
    overlap: Annotated[Literal["allow", "skip", "queue"] | None, typer.Option(help=_OVERLAP_HELP)] = None,
    ordering_key: Annotated[
        str | None, typer.Option(help="Events with the same key are delivered in order if the channel says so, such as customer-7.")
    ] = None,
    channel: Channels = None,
    retry: Retry = None,
    timeout: Timeout = None,
    content_type: ContentType = None,
    on_delivered: Annotated[str | None, typer.Option(help="Channel of a callback with the outcome, after a delivery.")] = None,
    on_dead: Annotated[str | None, typer.Option(help="Channel of a callback if an event is dead or lapsed.")] = None,
) -> None:
    """Create a schedule, or replace it.

    Examples:
        tocsin schedules put nightly --cron '30 2 * * *' --timezone Europe/Berlin
        tocsin schedules put open --cron '0 8 * * MON-FRI' --calendar holidays --exclude 2026-12-24
        tocsin schedules put poll --every 15m --payload '{"job": "poll"}'
    """
    from ...client import calls

    if (cron is None) == (every is None):
        raise CommandFailed("give one of --cron and --every", advice="For example: --every PT15M", status=Exit.USAGE)
    if dialect is not None:
        cron = _rewritten(cron, dialect)
    if within is not None and catch_up is None:
        raise CommandFailed("--within needs --catch-up", where="--within", advice="Add --catch-up last, or all.", status=Exit.USAGE)
    given: dict[str, Any] = {"cron": cron, "every": every, "timezone": timezone, "start": start, "end": end, "jitter": jitter}
    given |= {**channel_fields(channel), "catch_up": {"policy": catch_up, **({"within": within} if within else {})} if catch_up else None}
    given |= {"on_delivered": on_delivered, "on_dead": on_dead}
    given |= {"exclude": {"dates": exclude or [], "calendars": calendar or []} if exclude or calendar else None}
    given |= {"at_most_once_per": at_most_once_per, "overlap": overlap, "ordering_key": ordering_key}
    body = {name: value for name, value in (given | terms_of(retry, timeout, content_type)).items() if value is not None}
    body["payload"] = calls.sent_payload(parse_payload(payload, content_type), body)
    session.print_document(session.send("PUT", api_path("schedules", id), body))


def _rewritten(cron: str | None, dialect: Dialect) -> str:
    """Return the expression of another scheduler as schedules read it."""
    if cron is None:
        raise CommandFailed("--dialect needs --cron", where="--dialect", advice="Leave it out for --every.", status=Exit.USAGE)
    try:
        return rewritten(cron, dialect)
    except ValueError as wrong:
        raise CommandFailed(str(wrong), where="--cron", status=Exit.USAGE) from None


def get(session: CommandSession, id: Id) -> None:
    """Show a schedule.

    Examples:
        tocsin schedules get nightly
    """
    session.print_document(session.get(api_path("schedules", id)))


def list_(session: CommandSession) -> None:
    """List all schedules.

    Examples:
        tocsin schedules list
        tocsin schedules list --watch 5
    """
    found = session.items("schedules")
    session.print_list(found if session.json else sorted(found, key=lambda each: each["id"]), _COLUMNS, _row, empty="no schedules")


def delete(
    session: CommandSession,
    id: Id,
    keep_overdue: Annotated[bool, typer.Option("--keep-overdue", help="Deliver overdue occurrences, also if a sweep is late.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a schedule. Its coming occurrences are not delivered.

    Examples:
        tocsin schedules delete nightly --yes
        tocsin schedules delete nightly --keep-overdue --yes
    """
    session.confirm(f"Delete the schedule {id}", yes)
    session.send("DELETE", api_path("schedules", id), overdue="keep" if keep_overdue else None)
    session.print_result({"id": id, "deleted": True}, f"schedule {id} is deleted")


def pause(session: CommandSession, id: Id) -> None:
    """Pause a schedule until it is resumed. Occurrences missed meanwhile never fire.

    Examples:
        tocsin schedules pause nightly
    """
    session.print_document(session.send("POST", api_path("schedules", id, "pause")))


def resume(session: CommandSession, id: Id) -> None:
    """Resume a paused schedule.

    Examples:
        tocsin schedules resume nightly
    """
    session.print_document(session.send("POST", api_path("schedules", id, "resume")))


def trigger(
    session: CommandSession,
    id: Id,
    name: Annotated[str | None, typer.Option("--id", help="End of the event's id: a repeated call with it makes no second event.")] = None,
) -> None:
    """Fire a schedule once more, now.

    Examples:
        tocsin schedules trigger nightly
        tocsin schedules trigger nightly --id after-repair
    """
    made = session.send("POST", api_path("schedules", id, "trigger"), {"id": name or uuid.uuid4().hex[:16]}, repeatable=True)
    session.print_result(made, f"event {made['id']} is due at {made['due']}")


def backfill(
    session: CommandSession,
    id: Id,
    since: Annotated[str, time_option("First time of the range, such as 2026-11-20T00:00:00Z.", "--from")],
    until: Annotated[str, time_option("End of the range, exclusive; not later than now.", "--to")],
    name: Annotated[str | None, typer.Option("--id", help="Name of the backfill: a repeated call with it doubles nothing.")] = None,
    spread: Annotated[str | None, duration_option("Deliver the events evenly over this duration, such as 10m.")] = None,
) -> None:
    """Create an event now for each occurrence in a range of the past, at most 1,000.

    Examples:
        tocsin schedules backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-20T00:00:00Z --id november --spread 10m
    """
    given = {"from": since, "to": until, "id": name, "spread": spread}
    body = {key: value for key, value in given.items() if value is not None}
    made = session.send("POST", api_path("schedules", id, "backfill"), body, repeatable=name is not None)
    there = f", {made['existing']:,} existed" if made["existing"] else ""
    session.print_result(made, f"{count_of(made['created'], 'event')} created{there}; the backfill's id is {made['id']}")


def put_calendar(
    session: CommandSession,
    name: Annotated[str, typer.Argument(help="Name of the calendar, such as holidays.", show_default=False)],
    dates: Annotated[list[str], typer.Argument(metavar="DATE...", help="Its dates, such as 2026-12-25.", show_default=False)],
) -> None:
    """Create a calendar, or replace its dates. The schedules that name it follow it.

    Examples:
        tocsin schedules calendars put holidays 2026-12-25 2026-12-26 2027-01-01
    """
    session.print_document(session.send("PUT", api_path("calendars", name), {"dates": dates}))


def list_calendars(session: CommandSession) -> None:
    """List all calendars with their dates.

    Examples:
        tocsin schedules calendars list
    """
    session.print_list(
        session.items("calendars"), ("calendar", "dates"), lambda each: (each["name"], " ".join(each["dates"])), empty="no calendars"
    )


def delete_calendar(
    session: CommandSession,
    name: Annotated[str, typer.Argument(help="Name of the calendar, such as holidays.", show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete a calendar that no schedule names.

    Examples:
        tocsin schedules calendars delete holidays --yes
    """
    session.confirm(f"Delete the calendar {name}", yes)
    session.send("DELETE", api_path("calendars", name))
    session.print_result({"calendar": name, "deleted": True}, f"calendar {name} is deleted")


def preview(
    session: CommandSession, id: Id, n: Annotated[int, typer.Option("-n", min=1, max=100, help="Number of occurrences.")] = 10
) -> None:
    """List the next occurrences of a schedule, without jitter.

    Examples:
        tocsin schedules preview nightly -n 3
    """
    found = session.get(api_path("schedules", id, "preview"), n=n)
    columns = ("at", "local", "reason")
    session.print_list(
        found["items"],
        columns,
        lambda each: [each.get(name) for name in columns],
        empty="no occurrence is left",
        title=found.get("reads_as") or "",
    )


_COLUMNS = ("id", "recurs", "state", "next", "channel")


def _row(each: dict[str, Any]) -> Sequence[Any]:
    channels = each.get("channels") or [each.get("channel") or ""]
    return each["id"], _recurrence(each), "paused" if each.get("paused") else "ok", each.get("next"), ", ".join(channels)


def _recurrence(schedule: dict[str, Any]) -> str:
    if schedule.get("cron"):
        return f"{schedule['cron']} {schedule.get('timezone') or 'UTC'}"
    return f"every {schedule.get('every')}"
