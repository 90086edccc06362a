"""Tools that read. Each docstring is the tool's description; a line of it is what an assistant chooses by."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ...client.errors import Forbidden
from ...core.label_text import labels_text
from ..commands import unreadable_answers
from ..connections import Connection
from ..events.fanouts import is_fanout
from ..failures import CommandFailed
from ..session import CommandSession, api_path
from .answers import event as present_event
from .answers import explain, listed, present, to_text, untrusted

MOST: Final = 100
"""Most items of a list in one answer."""
_NARROW: Final = "narrow the list by its arguments"
_EVENT_FIELDS: Final = ("id", "state", "due", "channel", "late_ms", "held", "error", "labels", "next_attempt", "delivered_at", "fanout")

EventId = Annotated[str, Field(description="Id of the event, such as order-17.", min_length=1, max_length=512)]
FleetName = Annotated[str, Field(description="Name of the fleet, such as web.", min_length=1, max_length=128)]
TenantName = Annotated[str | None, Field(description="Tenant to act for. Needed with an admin key, unless this server acts for one.")]
Limit = Annotated[int, Field(description="Largest number of items.", ge=1, le=MOST)]
TimeText = Annotated[str | None, Field(description="A time with an offset, such as 2026-11-21T10:21:55Z.", max_length=64)]
DurationText = Annotated[str | None, Field(description="An ISO 8601 duration, such as PT30S or P1D.", max_length=64)]
ChannelName = Annotated[str | None, Field(description="Name of a channel, such as default.", max_length=128)]
Labels = Annotated[dict[str, str] | None, Field(description='Labels that the events have, such as {"order": "17"}.')]
IdPrefix = Annotated[str | None, Field(description="Beginning of the events' ids, such as order-.", max_length=256)]
ErrorPart = Annotated[str | None, Field(description="Part of the events' last error, such as status 500.", max_length=256)]
EventState = Literal["scheduled", "firing", "working", "retrying", "delivered", "dead", "cancelled", "lapsed"]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Opens a session for each call of a tool. app: the connection. payloads: False if nobody may read payloads and answers."""

    app: Connection
    payloads: bool = True

    @contextlib.contextmanager
    def open(self, tenant: str | None = None) -> Iterator[CommandSession]:
        """Open a session that acts for a tenant. Raises `CommandFailed` if this server acts for another one."""
        if tenant and self.app.tenant and tenant != self.app.tenant:
            advice = "Leave the argument tenant out, or start another server with --tenant."
            raise CommandFailed(f"this server acts for the tenant {self.app.tenant} only", where="tenant", advice=advice)
        session = CommandSession(replace(self.app, tenant=tenant or self.app.tenant), json=True)
        session.activity.disable()
        try:
            with unreadable_answers(session):
                yield session
        finally:
            session.close()


@dataclass(frozen=True, slots=True)
class ReadingTools:
    """The tools that read, over the sessions of one server."""

    sessions: Sessions

    def all(self) -> tuple[Callable[..., str], ...]:
        """Return the tools in the order in which they are listed."""
        return (
            self.why_was_it_late,
            self.doctor,
            self.preview_schedule,
            self.get_event,
            self.list_events,
            self.list_dead_letters,
            self.list_schedules,
            self.list_channels,
            self.list_tenants,
            self.list_fleets,
            self.list_leases,
            self.get_bulk_job,
        )

    def why_was_it_late(self, event_id: EventId, tenant: TenantName = None) -> str:
        """Explain why an event arrived late, or why it has not arrived: each reason in milliseconds, its meaning, and the next step."""
        with self.sessions.open(tenant) as session:
            found = session.get(api_path("events", event_id))
            now = datetime.now(UTC)
            parts = found["events"] if is_fanout(found) else [found]
            explained = [self._event(explain(each, now)) for each in parts]
        return to_text({"events": explained} if is_fanout(found) else explained[0])

    def doctor(self, tenant: TenantName = None, fleet: Annotated[str | None, Field(description="Fleet to examine instead.")] = None) -> str:
        """Examine a tenant, all tenants (admin key, no tenant), or one fleet: what is wrong, what that means, and the commands that help.

        The commands are for a person: show them, do not run them unasked.
        """
        from ..doctor import command
        from ..fleets import leases

        with self.sessions.open(tenant) as session:
            findings, nothing = (
                (leases.examine(session, fleet), f"nothing is wrong with {fleet}") if fleet is not None else command.examine(session)
            )
        # Errors of receivers, and names that people chose, are part of both.
        shown = [
            {
                "severity": each.how,
                "what": untrusted(each.what, 500),
                "means": each.means,
                "do": each.do,
                **({"commands": [untrusted(command, 500) for command in each.run]} if each.run else {}),
            }
            for each in findings
        ]
        return to_text({"findings": shown} if shown else {"findings": [], "summary": f"{nothing}."})

    def preview_schedule(
        self,
        cron: Annotated[
            str | None, Field(description="Cron expression, such as 30 2 * * MON-FRI; six fields begin with the second.", max_length=256)
        ] = None,
        every: DurationText = None,
        timezone: Annotated[str | None, Field(description="Time zone of cron, such as Europe/Berlin. Default: UTC.", max_length=64)] = None,
        start: TimeText = None,
        end: TimeText = None,
        count: Annotated[int, Field(description="Number of occurrences.", ge=1, le=50)] = 10,
        tenant: TenantName = None,
    ) -> str:
        """Show when a schedule would occur, in UTC and in its time zone, without storing it. Give either cron or every."""
        given = {"cron": cron, "every": every, "timezone": timezone, "start": start, "end": end}
        with self.sessions.open(tenant) as session:
            body = {name: value for name, value in given.items() if value is not None}
            found = session.send("POST", "schedules/preview", body, repeatable=True, n=count)
        occurrences = [
            {"utc": each["at"], "local": each.get("local"), **{name: value for name, value in each.items() if name not in ("at", "local")}}
            for each in found["items"]
        ]
        more = {name: present(value, name) for name, value in found.items() if name not in ("items", "next")}
        return to_text({"timezone": timezone or "UTC", **more, "occurrences": occurrences})

    def get_event(self, event_id: EventId, tenant: TenantName = None) -> str:
        """Show one event: state, times, payload, last attempts with the receiver's answers; or the events of a fan-out."""
        with self.sessions.open(tenant) as session:
            found = session.get(api_path("events", event_id))
        return to_text({"events": [self._event(each) for each in found["events"]]} if is_fanout(found) else self._event(found))

    def list_events(
        self,
        state: EventState | None = None,
        channel: ChannelName = None,
        labels: Labels = None,
        due_from: TimeText = None,
        due_before: TimeText = None,
        id_prefix: IdPrefix = None,
        error: ErrorPart = None,
        held: Annotated[bool, Field(description="Only events that a paused channel or a circuit breaker holds.")] = False,
        limit: Limit = 20,
        tenant: TenantName = None,
    ) -> str:
        """List events that match all arguments, without payloads, in no order."""
        query: dict[str, Any] = {"state": state, "channel": channel, "from_": due_from, "to": due_before}
        query |= {"label": labels_text(labels or {}), "id_prefix": id_prefix, "error": error, "held": "true" if held else None}
        return self._list("events", limit, tenant, names=_EVENT_FIELDS, **query)

    def list_dead_letters(
        self,
        channel: ChannelName = None,
        due_from: TimeText = None,
        due_before: TimeText = None,
        limit: Limit = 20,
        tenant: TenantName = None,
    ) -> str:
        """List events that no attempt delivered (dead letters), with their errors, without payloads."""
        return self._list("dead-letters", limit, tenant, names=_EVENT_FIELDS, channel=channel, from_=due_from, to=due_before)

    def list_schedules(self, limit: Limit = 50, tenant: TenantName = None) -> str:
        """List schedules: cron or interval, time zone, next and last occurrence, and whether they are paused."""
        hidden = ("payload", "tenant", "revision")
        return self._list("schedules", limit, tenant, hidden=hidden)

    def list_channels(self, limit: Limit = 50, tenant: TenantName = None) -> str:
        """List channels: where events are delivered, pauses, circuit breakers, last failure. Without an admin key: states and counts."""
        with self.sessions.open(tenant) as session:
            name = session.app.tenant or session.get("key").get("tenant")
            if not name:
                advice = "Give the argument tenant. The tool list_tenants names them."
                raise CommandFailed("the key belongs to no tenant", where="tenant", advice=advice)
            try:
                items = list(session.items(api_path("tenants", name, "channels"), limit=limit + 1))
            except Forbidden:
                figures = session.get("stats")["channels"]
                found = listed([{"name": each, **figures[each]} for each in sorted(figures)], limit, narrow=_NARROW)
                found["left_out"] = {**found.get("left_out", {}), "addresses": "the key lacks the scope admin; the counts cover a day"}
                return to_text(found)
        return to_text(listed(items, limit, narrow="give a larger limit"))

    def list_tenants(self, limit: Limit = 50) -> str:
        """List tenants with their limits. Needs an admin key."""
        return self._list("tenants", limit, None)

    def list_fleets(self, limit: Limit = 50, tenant: TenantName = None) -> str:
        """List fleets: partitions, profile, servers that they need."""
        return self._list("fleets", limit, tenant)

    def list_leases(self, fleet: FleetName, limit: Limit = MOST, tenant: TenantName = None) -> str:
        """List the partitions of a fleet with their owners, epochs and ages of the owners' heartbeats."""
        return self._list(api_path("fleets", fleet, "leases"), limit, tenant)

    def get_bulk_job(self, job_id: Annotated[str, Field(description="Id of the job.", max_length=64)], tenant: TenantName = None) -> str:
        """Show a bulk job: its filter, its count, a sample of its events, its progress and failures."""
        with self.sessions.open(tenant) as session:
            return to_text(bulk_job(session.get(api_path("jobs", job_id))))

    def _event(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return present_event(found, payloads=self.sessions.payloads)

    def _list(
        self, path: str, limit: int, tenant: str | None, *, names: tuple[str, ...] = (), hidden: tuple[str, ...] = (), **query: Any
    ) -> str:
        with self.sessions.open(tenant) as session:
            items = [
                {name: value for name, value in each.items() if name not in hidden}
                for each in session.items(path, limit=limit + 1, **query)
            ]
        return to_text(listed(items, limit, narrow=_NARROW, names=names))


def bulk_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a bulk job without its confirmation, which belongs to the two steps of a change."""
    return {name: present(value, "error" if name == "filter" else name) for name, value in job.items() if name != "confirmation"}
