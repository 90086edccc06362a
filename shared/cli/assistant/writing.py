"""Tools that change something. They exist only with --allow-writes. None deletes a definition, and a change of many events takes two calls:
the second one has to name the number of events that the first one counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ...core.readable import count_of
from ..events.jobs import wait
from ..failures import CommandFailed
from ..session import api_path
from ..terminal.documents import dump
from .answers import present, to_text
from .reading import ChannelName, DurationText, ErrorPart, EventId, EventState, IdPrefix, Labels, Sessions, TenantName, TimeText, bulk_job

MAX_LOOKS: Final = 60
"""Most looks at a job that is being counted: half a minute."""


@dataclass(frozen=True, slots=True)
class WritingTools:
    """The tools that change something, over the sessions of one server."""

    sessions: Sessions

    def all(self) -> tuple[Callable[..., str], ...]:
        """Return the tools in the order in which they are listed."""
        return (self.create_event, self.cancel_event, self.redrive_event, self.prepare_bulk, self.confirm_bulk, self.stop_bulk)

    def create_event(
        self,
        payload: Annotated[Any, Field(description="Payload of the event, as JSON.")],
        due: TimeText = None,
        delay: DurationText = None,
        event_id: Annotated[str | None, Field(description="Id of the event. The same id again is the same event.", max_length=512)] = None,
        channel: ChannelName = None,
        labels: Labels = None,
        expires: DurationText = None,
        tenant: TenantName = None,
    ) -> str:
        """Create one event, which is delivered to its channel at its time. Give either due or delay."""
        from ...client import calls
        from ..session import usage_errors

        given: dict[str, Any] = {"due": due, "delay": delay, "id": event_id, "channel": channel, "labels": labels, "expires": expires}
        fields: Any = {name: value for name, value in given.items() if value is not None}
        with usage_errors("due, delay"):
            document = calls.event_document(payload, fields, make_id=True)
        with usage_errors("payload"):
            dump(payload)
        with self.sessions.open(tenant) as session:
            made = session.send("POST", "events", document, repeatable=True)
        return to_text({name: present(made[name], name) for name in ("id", "state", "due", "channel") if name in made})

    def cancel_event(self, event_id: EventId, tenant: TenantName = None) -> str:
        """Cancel one event: no delivery of it starts any more."""
        from ...client import calls
        from ..session import usage_errors

        with usage_errors("event_id"):
            call = calls.cancel(event_id)
        with self.sessions.open(tenant) as session:
            session.do(call)
        return to_text({"id": present(event_id), "state": "cancelled"})

    def redrive_event(self, event_id: EventId, tenant: TenantName = None) -> str:
        """Deliver one dead letter again, now."""
        with self.sessions.open(tenant) as session:
            found = session.send("POST", api_path("events", event_id, "redrive"))
        return to_text(present({name: value for name, value in found.items() if name in ("id", "state", "due", "changed")}))

    def prepare_bulk(
        self,
        action: Literal["cancel", "move", "fire", "redrive"],
        state: EventState | None = None,
        channel: ChannelName = None,
        labels: Labels = None,
        due_from: TimeText = None,
        due_before: TimeText = None,
        id_prefix: IdPrefix = None,
        error: ErrorPart = None,
        move_to: TimeText = None,
        later: DurationText = None,
        earlier: DurationText = None,
        tenant: TenantName = None,
    ) -> str:
        """Count the events that a change of many would concern, and show ten of them. Nothing is changed yet.

        Show count and sample to the person, and call confirm_bulk only if the person agrees to that number. move needs one of move_to,
        later and earlier.
        """
        filter = {"state": state, "channel": channel, "labels": labels or None, "id_prefix": id_prefix, "error": error}
        filter |= {"from": due_from, "to": due_before}
        chosen = {name: value for name, value in filter.items() if value is not None}
        if not chosen:
            raise CommandFailed("give a filter, such as channel or labels", where="prepare_bulk", advice="Name the events to change.")
        how = {"due": move_to, "later": later, "earlier": earlier}
        body = {"action": action, "filter": chosen} | {name: value for name, value in how.items() if value is not None}
        with self.sessions.open(tenant) as session:
            job = session.send("POST", "jobs", body, repeatable=True)
            for _ in range(MAX_LOOKS):
                if job["state"] != "counting":
                    break
                wait(session)
                job = session.get(api_path("jobs", job["id"]))
        return to_text(bulk_job(job))

    def confirm_bulk(
        self,
        job_id: Annotated[str, Field(description="Id of the job that prepare_bulk returned.", max_length=64)],
        count: Annotated[int, Field(description="The number of events that the person has agreed to change.", ge=1)],
        tenant: TenantName = None,
    ) -> str:
        """Start a prepared change of many events. It is refused unless count is the number that the job has counted."""
        with self.sessions.open(tenant) as session:
            path = api_path("jobs", job_id)
            job = session.get(path)
            if job["state"] != "counted":
                raise CommandFailed(f"the job is {job['state']}, not counted", where="job_id", advice="Prepare the change again.")
            if job["count"] != count:
                title = f"the job concerns {count_of(job['count'], 'event')}, not {count:,}; nothing was changed"
                raise CommandFailed(title, where="count", advice="Show the job's count and sample to the person, and ask again.")
            job = session.send("POST", f"{path}/confirm", {"confirmation": job["confirmation"]}, repeatable=True)
        return to_text(bulk_job(job))

    def stop_bulk(self, job_id: Annotated[str, Field(description="Id of the job.", max_length=64)], tenant: TenantName = None) -> str:
        """Stop a bulk job, or drop a prepared one. What it has changed stays changed."""
        with self.sessions.open(tenant) as session:
            return to_text(bulk_job(session.send("POST", api_path("jobs", job_id, "cancel"), repeatable=True)))
