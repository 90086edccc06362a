"""`Client`: calls that return when they are done. Threads may share one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Self, Unpack

import httpx

from . import batches, calls, http
from .exchange import Call, Failure, Patience, Reply, Send, Steps, exchange
from .model import Batch, Event, Load, NewEvent, Occurrence, Options, Page, Schedule, ScheduleOptions, Stats


class Client:
    """The API of one Tocsin app, for one key.

    ::

        with Client("https://app.example", key) as tocsin:
            event = tocsin.schedule({"order": 17}, delay=timedelta(days=30))
            tocsin.cancel(event.id)

    `tenant`: for admin keys, whose events these are. `timeout`: seconds without a byte. `retries`: how often a call is tried again where
    that is safe. `transport`: another way to send requests, for proxies, own certificates and tests. Every operation raises the errors of
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
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = httpx.Client(**http.options(url, key, timeout), transport=transport)
        self._tenant, self._patience, self._sleep = tenant, Patience(retries), sleep
        self.schedules = Schedules(self)
        """Recurring schedules."""

    def __repr__(self) -> str:
        return f"Client({str(self._http.base_url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def schedule(self, payload: Any, **options: Unpack[Options]) -> Event:
        """Schedule an event. Without `id` the client makes one, so that a lost answer does no harm; not for durability `fast`."""
        return self._do(calls.schedule(payload, **options))

    def batch(self, events: Iterable[NewEvent], *, make_ids: bool = False) -> Batch:
        """Schedule any number of events; refused ones do not stop the others. Raises `BatchStopped`.

        After a lost answer nobody knows about the events of that chunk, unless each has an id: then it is sent again, and nothing is
        doubled. `make_ids=True` gives an id to those that have none, which costs the service a storage transaction each.
        """
        return self._run(batches.send(events, make_ids=make_ids, patience=self._patience, chance=random.random))

    def get(self, id: str) -> Event:
        """The event as it stands."""
        return self._do(calls.get(id))

    def list(
        self, *, since: datetime | None = None, until: datetime | None = None, state: str | None = None, channel: str | None = None
    ) -> Iterator[Event]:
        """Events due from `since` to before `until`, in no order. One that ends meanwhile may come twice."""
        return self._pages(lambda cursor: calls.events(since=since, until=until, state=state, channel=channel, cursor=cursor))

    def change(self, id: str, *, if_match: str | None = None, **changes: Any) -> Event:
        """Change `due` or `delay`, `payload`, `channel`, `expires`. `if_match`: only if this is still the version (`Event.etag`)."""
        return self._do(calls.change(id, changes, if_match=if_match))

    def cancel(self, id: str, *, if_match: str | None = None) -> None:
        """Cancel the event: once this has returned, no delivery of it starts."""
        self._do(calls.cancel(id, if_match=if_match))

    def fire(self, id: str) -> Event:
        """Deliver the event now."""
        return self._do(calls.fire(id))

    def redrive(self, id: str) -> Event:
        """Bring a dead event back."""
        return self._do(calls.redrive(id))

    def dead_letters(self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> Iterator[Event]:
        """Events that could not be delivered."""
        return self._pages(lambda cursor: calls.dead_letters(since=since, until=until, channel=channel, cursor=cursor))

    def redrive_all(self, *, since: datetime | None = None, until: datetime | None = None, channel: str | None = None) -> int:
        """Bring back all dead events that match; how many. After a lost answer it counts those of the last try only."""
        return self._do(calls.redrive_all(since=since, until=until, channel=channel))

    def stats(self) -> Stats:
        """How the tenant's events stand."""
        return self._do(calls.stats())

    def load(self, since: datetime | None = None, until: datetime | None = None) -> tuple[Load, ...]:
        """How many events are planned, by minute."""
        return self._do(calls.load(since, until))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Any operation: `path` comes after `/api/v1/`, with its query; `body` and answer are JSON (None: none)."""
        return self._do(calls.raw(method, path, body))

    def _do[T](self, call: Call[T]) -> T:
        return self._run(exchange(call, self._patience, random.random))

    def _pages[T](self, page: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        cursor: str | None = None
        while True:
            found = self._do(page(cursor))
            yield from found.items
            cursor = found.next
            if cursor is None:
                return

    def _run[T](self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                answer = self._send(effect.call) if isinstance(effect, Send) else self._sleep(effect.seconds)
                effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _send(self, call: Call[Any]) -> Reply | Failure:
        try:
            return http.reply(self._http.request(**http.request(call, self._tenant)))
        except httpx.TransportError as error:
            return http.failure(error)


class Schedules:
    """Recurring schedules of a `Client`."""

    def __init__(self, client: Client) -> None:
        self._do, self._pages = client._do, client._pages

    def put(self, id: str, payload: Any, *, if_match: str | None = None, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Create the schedule or replace it."""
        return self._do(calls.put_schedule(id, payload, if_match, options))

    def get(self, id: str) -> Schedule:
        """The schedule as it stands."""
        return self._do(calls.get_schedule(id))

    def list(self) -> Iterator[Schedule]:
        """All of the tenant."""
        return self._pages(lambda cursor: calls.schedules(cursor=cursor))

    def delete(self, id: str, *, if_match: str | None = None) -> None:
        """Remove the schedule; nothing of it fires any more."""
        self._do(calls.delete_schedule(id, if_match))

    def pause(self, id: str) -> Schedule:
        """Fire nothing until `resume`. What is missed meanwhile never fires."""
        return self._do(calls.pause_schedule(id, paused=True))

    def resume(self, id: str) -> Schedule:
        """Go on."""
        return self._do(calls.pause_schedule(id, paused=False))

    def trigger(self, id: str) -> Event:
        """Fire once more, now. Never repeated by itself."""
        return self._do(calls.trigger(id))

    def preview(self, id: str, n: int = 10) -> tuple[Occurrence, ...]:
        """The next `n` occurrences, with reasons where the clock moves them."""
        return self._do(calls.preview(id, n))
