"""`AsyncClient`: the same operations as `Client`, awaited. Belongs to one event loop."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any, Self, Unpack

import httpx

from ..core.clock import Clock, SystemClock
from . import batches, calls, http
from .exchange import Call, Failure, Patience, Reply, Send, Steps, exchange
from .model import Batch, Event, Load, NewEvent, Occurrence, Options, Page, Schedule, ScheduleOptions, Stats


class AsyncClient:
    """The API of one Tocsin app, for one key.

    ::

        async with AsyncClient("https://app.example", key) as tocsin:
            event = await tocsin.schedule({"order": 17}, delay=timedelta(days=30))
            await tocsin.cancel(event.id)

    `tenant`: for admin keys, whose events these are. `timeout`: seconds without a byte. `retries`: how often a call is tried again where
    that is safe. `transport`: another way to send requests, for proxies, own certificates and tests. `clock`: what pauses between
    tries are measured by. Every operation raises the errors of
    `tocsin.client.errors`, ValueError and TypeError for arguments that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(**http.options(url, key, timeout), transport=transport)
        self._tenant, self._patience, self._clock = tenant, Patience(retries), clock or SystemClock()
        self.schedules = AsyncSchedules(self)
        """Recurring schedules."""

    def __repr__(self) -> str:
        return f"AsyncClient({str(self._http.base_url)!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def schedule(self, payload: Any, **options: Unpack[Options]) -> Event:
        """Schedule an event. Without `id` the client makes one, so that a lost answer does no harm; not for durability `fast`."""
        return await self._do(calls.schedule(payload, **options))

    async def batch(self, events: Iterable[NewEvent], *, make_ids: bool = False) -> Batch:
        """Schedule any number of events; refused ones do not stop the others. Raises `BatchStopped`.

        After a lost answer nobody knows about the events of that chunk, unless each has an id: then it is sent again, and nothing is
        doubled. `make_ids=True` gives an id to those that have none, which costs the service a storage transaction each.
        """
        return await self._run(batches.send(events, make_ids=make_ids, patience=self._patience, chance=random.random))

    async def get(self, id: str) -> Event:
        """The event as it stands."""
        return await self._do(calls.get(id))

    def list(
        self, *, since: datetime | None = None, until: datetime | None = None, state: str | None = None, channel: str | None = None
    ) -> AsyncIterator[Event]:
        """Events due from `since` to before `until`, in no order. One that ends meanwhile may come twice."""
        return self._pages(lambda cursor: calls.events(since=since, until=until, state=state, channel=channel, cursor=cursor))

    async def change(self, id: str, *, if_match: str | None = None, **changes: Any) -> Event:
        """Change `due` or `delay`, `payload`, `channel`, `expires`. `if_match`: only if this is still the version (`Event.etag`)."""
        return await self._do(calls.change(id, changes, if_match=if_match))

    async def cancel(self, id: str, *, if_match: str | None = None) -> None:
        """Cancel the event: once this has returned, no delivery of it starts."""
        await self._do(calls.cancel(id, if_match=if_match))

    async def fire(self, id: str) -> Event:
        """Deliver the event now."""
        return await self._do(calls.fire(id))

    async def redrive(self, id: str) -> Event:
        """Bring a dead event back."""
        return await self._do(calls.redrive(id))

    def dead_letters(
        self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None
    ) -> AsyncIterator[Event]:
        """Events that could not be delivered."""
        return self._pages(lambda cursor: calls.dead_letters(since=since, until=until, channel=channel, cursor=cursor))

    async def redrive_all(self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> int:
        """Bring back all dead events that match; how many. After a lost answer it counts those of the last try only."""
        return await self._do(calls.redrive_all(since=since, until=until, channel=channel))

    async def stats(self) -> Stats:
        """How the tenant's events stand."""
        return await self._do(calls.stats())

    async def load(self, since: datetime | None = None, until: datetime | None = None) -> tuple[Load, ...]:
        """How many events are planned, by minute."""
        return await self._do(calls.load(since, until))

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any operation: `path` comes after `/api/v1/`, with its query; `body` and answer are JSON (None: none)."""
        return await self._do(calls.raw(method, path, body))

    async def _do[T](self, call: Call[T]) -> T:
        return await self._run(exchange(call, self._patience, random.random))

    async def _pages[T](self, page: Callable[[str | None], Call[Page[T]]]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            found = await self._do(page(cursor))
            for item in found.items:
                yield item
            cursor = found.next
            if cursor is None:
                return

    async def _run[T](self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                if isinstance(effect, Send):
                    effect = steps.send(await self._send(effect.call))
                else:
                    await self._clock.sleep(effect.seconds)
                    effect = steps.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _send(self, call: Call[Any]) -> Reply | Failure:
        try:
            return http.reply(await self._http.request(**http.request(call, self._tenant)))
        except httpx.TransportError as error:
            return http.failure(error)


class AsyncSchedules:
    """Recurring schedules of an `AsyncClient`."""

    def __init__(self, client: AsyncClient) -> None:
        self._do, self._pages = client._do, client._pages

    async def put(self, id: str, payload: Any, *, if_match: str | None = None, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Create the schedule or replace it."""
        return await self._do(calls.put_schedule(id, payload, if_match, options))

    async def get(self, id: str) -> Schedule:
        """The schedule as it stands."""
        return await self._do(calls.get_schedule(id))

    def list(self) -> AsyncIterator[Schedule]:
        """All of the tenant."""
        return self._pages(lambda cursor: calls.schedules(cursor=cursor))

    async def delete(self, id: str, *, if_match: str | None = None) -> None:
        """Remove the schedule; nothing of it fires any more."""
        await self._do(calls.delete_schedule(id, if_match))

    async def pause(self, id: str) -> Schedule:
        """Fire nothing until `resume`. What is missed meanwhile never fires."""
        return await self._do(calls.pause_schedule(id, paused=True))

    async def resume(self, id: str) -> Schedule:
        """Go on."""
        return await self._do(calls.pause_schedule(id, paused=False))

    async def trigger(self, id: str) -> Event:
        """Fire once more, now. Never repeated by itself."""
        return await self._do(calls.trigger(id))

    async def preview(self, id: str, n: int = 10) -> tuple[Occurrence, ...]:
        """The next `n` occurrences, with reasons where the clock moves them."""
        return await self._do(calls.preview(id, n))
