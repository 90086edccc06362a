"""The operations of `AsyncClient`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, Unpack

import httpx

from .. import batches, calls
from ..exchange import ApiCall, CallSteps, RetrySettings, exchange
from ..locking.concurrent import AsyncLock
from ..locking.rules import LockAttempt, new_attempt
from ..model import (
    AnswerPage,
    Backfill,
    Batch,
    BulkJob,
    Event,
    EventOptions,
    Fanout,
    FanoutReport,
    Heartbeat,
    MinuteLoad,
    NewEvent,
    Occurrence,
    Schedule,
    ScheduleOptions,
    Stats,
)
from ..resources.calls import change, path
from ..resources.concurrent import AsyncCalendars, AsyncChannels, AsyncFleets, AsyncKeys, AsyncTenants
from ..sending.concurrent import AsyncPause, run


class AsyncOperations:
    """The operations of `AsyncClient`, and what sends them."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        tenant: str | None,
        retry_settings: RetrySettings,
        *,
        pause: AsyncPause,
        new_lock: Callable[[Callable[[], LockAttempt], Callable[[], None] | None], AsyncLock],
    ) -> None:
        """new_lock: takes a function that returns a new attempt, and `on_lost`."""
        self._http, self._tenant, self._retry_settings, self._pause, self._new_lock = client, tenant, retry_settings, pause, new_lock
        self.schedules = AsyncSchedules(self)
        """Recurring schedules."""
        self.fanouts = AsyncFanouts(self)
        """Fan-outs: the events of several channels with a common id."""
        self.jobs = AsyncJobs(self)
        """Bulk jobs: change all events that match a filter."""
        self.channels = AsyncChannels(self)
        """Channels of the client's tenant. Needs an admin key, as `tenants` and `keys` do."""
        self.tenants = AsyncTenants(self)
        """Tenants of the app."""
        self.keys = AsyncKeys(self)
        """Keys of the client's tenant."""
        self.calendars = AsyncCalendars(self)
        """Calendars: days that schedules exclude."""
        self.fleets = AsyncFleets(self)
        """Definitions of fleets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._http.base_url)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def schedule(self, payload: Any, **options: Unpack[EventOptions]) -> Event:
        """Schedule an event. Without `id` the client makes one, so that a retry creates no double; not for durability `fast`."""
        return await self._do(calls.schedule(payload, **options))

    async def fan_out(self, payload: Any, channels: Sequence[str], **options: Unpack[EventOptions]) -> Fanout:
        """Schedule an event for each of 2 to 10 channels; all are stored when this returns. Takes the options of `schedule`, but `channel`.

        `fanouts` reads and changes them together by their common id.
        """
        return await self._do(calls.fan_out(payload, channels, **options))

    async def batch(self, events: Iterable[NewEvent], *, make_ids: bool = False) -> Batch:
        """Schedule any number of events. A refused event does not stop the others. Raises `BatchStopped`.

        After a lost answer the events of that chunk are in doubt, unless each has an id: then the chunk is sent again without doubles.
        `make_ids=True` gives an id to each event without one, which costs the service a storage transaction per event.
        """
        return await self._run(batches.send_events(events, make_ids=make_ids, retry_settings=self._retry_settings, chance=random.random))

    async def get(self, id: str) -> Event:
        """Return the event."""
        return await self._do(calls.get(id))

    def list(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        state: str | None = None,
        channel: str | None = None,
        labels: Mapping[str, str] | None = None,
        id_prefix: str | None = None,
        error: str | None = None,
        held: bool = False,
    ) -> AsyncIterator[Event]:
        """Yield events due from `since` to before `until`, unordered. An event that ends meanwhile may be yielded twice.

        `labels`: at most 4, all of which the event has. `error`: a part of the last error. `held`: only those that a paused channel
        or a circuit breaker holds.
        """
        filters: Any = {"since": since, "until": until, "state": state, "channel": channel}
        filters |= {"labels": labels, "id_prefix": id_prefix, "error": error, "held": held}
        return self._pages(lambda cursor: calls.events(**filters, cursor=cursor))

    async def change(self, id: str, *, if_match: str | None = None, **changes: Any) -> Event:
        """Change any of `due` or `delay`, `payload`, `content_type`, `channel`, `expires`, `retry`, `timeout`, `target` and the callbacks.

        None removes one of them. `if_match`: only if the version is still this `Event.etag`.
        """
        return await self._do(calls.change(id, changes, if_match=if_match))

    async def cancel(self, id: str, *, if_match: str | None = None) -> None:
        """Cancel the event. After this call returns, no delivery of it starts."""
        await self._do(calls.cancel(id, if_match=if_match))

    async def fire(self, id: str) -> Event:
        """Deliver the event now."""
        return await self._do(calls.fire(id))

    async def redrive(self, id: str) -> Event:
        """Deliver a dead event again."""
        return await self._do(calls.redrive(id))

    def dead_letters(
        self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None
    ) -> AsyncIterator[Event]:
        """Yield the dead events, which could not be delivered."""
        return self._pages(lambda cursor: calls.dead_letters(since=since, until=until, channel=channel, cursor=cursor))

    async def redrive_all(self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> int:
        """Redrive all dead events that match, and return their number. After a lost answer it counts only the last try's."""
        return await self._do(calls.redrive_all(since=since, until=until, channel=channel))

    async def heartbeat(self, name: str, *, within: timedelta, channel: str | None = None, payload: Any = None) -> Heartbeat:
        """Say that a job is alive: an event is delivered to `channel` if the next call does not come within this time."""
        return await self._do(calls.heartbeat(name, within, channel, payload))

    async def end_heartbeat(self, name: str) -> None:
        """End a monitor: no event is delivered until the next `heartbeat` begins it anew."""
        await self._do(calls.end_heartbeat(name))

    def lock(
        self,
        name: str,
        *,
        ttl: timedelta = timedelta(seconds=30),
        wait: timedelta | None = None,
        holder: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> AsyncLock:
        """Return the lock, which an `async with` block holds; see `AsyncLock`.

        `ttl`: validity of a grant, after which other callers get the lock if this process ends without a release. `wait`: longest time to
        wait; None: no limit, zero: do not wait. `holder`: name of this process, for people; by default host and process id. `on_lost`: is
        called when the lock is lost, on the event loop.
        """
        new_attempt(name, ttl, wait, holder)
        return self._new_lock(lambda: new_attempt(name, ttl, wait, holder), on_lost)

    async def stats(self) -> Stats:
        """Return the numbers of the tenant's events by state."""
        return await self._do(calls.stats())

    async def load(self, since: datetime | None = None, until: datetime | None = None) -> tuple[MinuteLoad, ...]:
        """Return the number of events due in each minute."""
        return await self._do(calls.load(since, until))

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call any operation. `path` follows `/api/v1/` and includes the query; `body` and answer are JSON, or None if empty."""
        return await self._do(calls.raw(method, path, body))

    async def _do[T](self, call: ApiCall[T]) -> T:
        return await self._run(exchange(call, self._retry_settings, random.random))

    async def _pages[T](self, page: Callable[[str | None], ApiCall[AnswerPage[T]]]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            found = await self._do(page(cursor))
            for item in found.items:
                yield item
            cursor = found.next
            if cursor is None:
                return

    async def _run[T](self, steps: CallSteps[T]) -> T:
        return await run(steps, self._http, self._tenant, self._pause)


class AsyncSchedules:
    """Recurring schedules of an `AsyncClient`."""

    def __init__(self, client: AsyncOperations) -> None:
        self._do, self._pages, self._run, self._retry_settings = client._do, client._pages, client._run, client._retry_settings

    async def put(self, id: str, payload: Any, *, if_match: str | None = None, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Create or replace the schedule."""
        return await self._do(calls.put_schedule(id, payload, if_match, options))

    async def set(self, id: str, **changes: Any) -> Schedule:
        """Change the named fields, such as `cron` or `payload`, and keep all others. None resets a field.

        Raises `Changed` if five times another call has changed the schedule in between.
        """
        steps: CallSteps[Schedule] = change("schedule", path("schedules", id), changes, self._retry_settings, random.random)
        return await self._run(steps)

    async def get(self, id: str) -> Schedule:
        """Return the schedule."""
        return await self._do(calls.get_schedule(id))

    def list(self) -> AsyncIterator[Schedule]:
        """Yield all schedules of the tenant."""
        return self._pages(lambda cursor: calls.schedules(cursor=cursor))

    async def delete(self, id: str, *, if_match: str | None = None, keep_overdue: bool = False) -> None:
        """Delete the schedule. Its coming occurrences do not fire. keep_overdue: those that are overdue do, also if a sweep is late."""
        await self._do(calls.delete_schedule(id, if_match, keep_overdue))

    async def pause(self, id: str) -> Schedule:
        """Pause the schedule until `resume`. Occurrences missed meanwhile never fire."""
        return await self._do(calls.pause_schedule(id, paused=True))

    async def resume(self, id: str) -> Schedule:
        """Resume the paused schedule."""
        return await self._do(calls.pause_schedule(id, paused=False))

    async def trigger(self, id: str) -> Event:
        """Fire the schedule once more, now. This call is never retried after a lost answer."""
        return await self._do(calls.trigger(id))

    async def backfill(
        self, id: str, since: datetime, until: datetime, *, name: str | None = None, spread: timedelta | None = None
    ) -> Backfill:
        """Create an event now for each occurrence from `since` up to, not including, `until`: at most 1,000.

        name: the same call with the same name creates nothing twice. spread: time over which the events are delivered.
        """
        return await self._do(calls.backfill(id, since, until, name=name, spread=spread))

    async def preview(self, id: str, n: int = 10) -> tuple[Occurrence, ...]:
        """Return the next `n` occurrences, with a reason for each that a clock change moves."""
        return await self._do(calls.preview(id, n))


class AsyncFanouts:
    """Fan-outs of an `AsyncClient`: events for several channels that `fan_out` has made, by their common id."""

    def __init__(self, client: AsyncOperations) -> None:
        self._do = client._do

    async def get(self, id: str) -> Fanout:
        """Return the events with their states."""
        return await self._do(calls.get_fanout(id))

    async def change(self, id: str, **changes: Any) -> FanoutReport:
        """Change fields of each event that is not being delivered and has not ended, as `change` does for one event."""
        return await self._do(calls.change_fanout(id, changes))

    async def cancel(self, id: str) -> FanoutReport:
        """Cancel each event that is not being delivered and has not ended."""
        return await self._do(calls.cancel_fanout(id))

    async def fire(self, id: str) -> FanoutReport:
        """Deliver each event now that is not being delivered and has not ended."""
        return await self._do(calls.fire_fanout(id))

    async def redrive(self, id: str) -> FanoutReport:
        """Deliver each dead event again."""
        return await self._do(calls.redrive_fanout(id))


class AsyncJobs:
    """Bulk jobs of an `AsyncClient`.

    ::

        job = await client.jobs.prepare("cancel", labels={"order": "17"})
        while job.state == "counting":
            job = await client.jobs.get(job.id)
        if job.count < 1000:
            await client.jobs.confirm(job.id, job.confirmation)
    """

    def __init__(self, client: AsyncOperations) -> None:
        self._do, self._pages = client._do, client._pages

    async def prepare(self, action: str, **fields: Any) -> BulkJob:
        """Count the events that match; nothing is changed before `confirm`. `action`: cancel, move, redrive or fire.

        fields: the filters of `list`; and for move, `due` (aware), `later` or `earlier` (timedelta).
        """
        return await self._do(calls.prepare_job(action, **fields))

    async def get(self, id: str) -> BulkJob:
        """Return the job: its count, its progress, its report."""
        return await self._do(calls.job(id))

    def list(self) -> AsyncIterator[BulkJob]:
        """Yield the tenant's jobs of the last days."""
        return self._pages(lambda cursor: calls.jobs(cursor=cursor))

    async def confirm(self, id: str, confirmation: str) -> BulkJob:
        """Start the job with the confirmation of its count."""
        return await self._do(calls.confirm_job(id, confirmation))

    async def cancel(self, id: str) -> BulkJob:
        """Stop the job. What it has changed stays changed."""
        return await self._do(calls.cancel_job(id))
