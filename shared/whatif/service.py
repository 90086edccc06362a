"""The instances of the app in a twin: production's code on virtual time, with the tenant, channels, events and schedules of an export."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import batched
from typing import Any, Final

from ..app.application import Application
from ..core.clock import Millis, to_text
from ..core.durations import format_duration
from ..core.errors import Problem, StorageError
from ..core.ids import SeededIds
from ..core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, GivenSettings
from ..delivery.channels.model import HttpChannel
from ..scheduler.ingest.admission import Admitted
from ..scheduler.keys import server_id
from ..storage import spread_storage
from ..storage.memory import MemoryTables
from ..storage.names import EVENTS, SHARDS
from ..tenants.model import Limits, Retry, Tenant
from .changes import AddedEvents, Change, RateChange
from .receivers import TwinReceivers, TwinSender
from .snapshot import MAX_NODES, ExportedChannel, PlannedEvent, Snapshot
from .twin.cpu import Charges, VirtualProcessor
from .twin.loop import LoopClock
from .twin.storage import AccountConnection, LimitedAccount, LimitedQueues, LimitedTables, StorageLimits
from .twin.trigger import HostTrigger, ticking

TENANT: Final = "demo"
ADDRESS: Final = "http://127.0.0.1:9/"
"""Nothing is ever sent there: `TwinSender` answers."""
BATCH: Final = 1000
MAX_PAYLOADS: Final = 512 * 2**20
"""Most bytes of all payloads of a run, which are in memory. Beyond it, large payloads are made smaller."""
MINUTE: Final[Millis] = 60_000


class TwinService:
    """The instances of the app over one storage account."""

    def __init__(self, snapshot: Snapshot, changes: Sequence[Change], clock: LoopClock, *, instances: int, seed: int) -> None:
        self._snapshot, self._changes, self._clock, self._seed = snapshot, changes, clock, seed
        self.account = LimitedAccount(clock, StorageLimits())
        self.receivers = TwinReceivers(snapshot.channels, changes, clock, seed)
        self._count = instances
        self.apps: list[Application] = []
        self.first, self.first_text = snapshot.first, to_text(snapshot.first)
        self.window = (snapshot.end - snapshot.first) / 1000
        """Seconds of the window."""

    async def open(self, stack: AsyncExitStack) -> None:
        """Start the instances, and create the tenant and its channels."""
        timeouts = {channel.name: channel.timeout / 1000 for channel in self._snapshot.channels}
        chance = random.Random(f"{self._seed}/polls")
        for number in range(self._count):
            processor, charges = VirtualProcessor(), Charges()
            way = AccountConnection(self.account, processor, charges, self._clock, random.Random(f"{self._seed}/{number}"))
            queues = LimitedQueues(way)
            storage = spread_storage([LimitedTables(way, self._clock)], queues, self._clock)
            sender = TwinSender(self.receivers, processor, charges.fire, timeouts)
            ids = SeededIds(f"{self._seed}/{number}")
            app = await Application.open(_settings(), clock=self._clock, ids=ids, storage=storage, senders={"http": sender})
            stack.push_async_callback(app.close)
            await asyncio.sleep(chance.uniform(0.0, 2.0 / self._count))
            await stack.enter_async_context(HostTrigger(app, queues, self._clock))
            self.apps.append(app)
        await stack.enter_async_context(ticking(self.app))
        given = self._snapshot
        limits = Limits(deliveries_per_second=given.tenant_rate, concurrency=given.tenant_concurrency, agents=MAX_NODES, servers=MAX_NODES)
        await self.app.directory.put(TENANT, Tenant(retry=Retry.model_validate(dict(given.retry)), limits=limits))
        for channel in given.channels:
            await self._put(channel, channel.rate)
            if channel.paused:
                await self.app.directory.channels.pause(TENANT, channel.name, True)

    @property
    def app(self) -> Application:
        """The first instance, which also runs the timers."""
        return self.apps[0]

    async def _put(self, channel: ExportedChannel, rate: float | None) -> None:
        # Leaving out the settings without a value lets the model's own defaults apply.
        given: dict[str, Any] = {"type": "http", "url": ADDRESS, "timeout": format_duration(channel.timeout)}
        limits = {"deliveries_per_second": rate, "concurrency": channel.concurrency}
        if any(value is not None for value in limits.values()):
            given["limits"] = limits
        if channel.per_key:
            given["per_key"] = dict(channel.per_key)
        spec = HttpChannel.model_validate(given)
        await self.app.directory.channels.put(TENANT, channel.name, spec)

    async def store(self) -> None:
        """Store the events of the export and of the changes, and the schedules."""
        chance = random.Random(f"{self._seed}/more")
        most = MAX_PAYLOADS // max(1, self._snapshot.total)
        known = [
            event if event.size <= most else replace(event, size=most)
            for event in spread_events(self._snapshot.events, self._snapshot.first, chance)
        ]
        # The events of the export are stored first, so that they have the same ids in both runs.
        await self._post(known)
        for change in self._changes:
            if isinstance(change, AddedEvents):
                dues = sorted(change.at + (chance.randrange(change.over) if change.over else 0) for _ in range(change.count))
                await self._post([PlannedEvent(due, change.channel) for due in dues])
        for number, spec in enumerate(self._snapshot.schedules):
            body = json.dumps({**spec, "payload": {}}).encode()
            await self.app.scheduler.recurring.put(TENANT, f"schedule-{number}", body)

    async def _post(self, events: Sequence[PlannedEvent]) -> None:
        for part in batched(events, BATCH):
            left: Sequence[PlannedEvent] = part
            while left:
                body = "\n".join(map(_event_text, left)).encode()
                results = await self.app.scheduler.ingest.batch(TENANT, body, lines=True)
                again: list[PlannedEvent] = []
                for event, result in zip(left, results, strict=True):
                    if isinstance(result, Admitted):
                        self.receivers.expect(result.id, event.due, event.channel)
                    elif isinstance(result, Problem) and result.status < 429:
                        raise ValueError(f"an event of the export is refused: {result}")
                    else:
                        again.append(event)
                left = again
                if left:
                    await asyncio.sleep(1.0)

    def rates(self) -> Iterator[tuple[Millis, ExportedChannel, float | None]]:
        """Yield the changes of channels' limits: time, channel, limit."""
        channels = {channel.name: channel for channel in self._snapshot.channels}
        for change in self._changes:
            if isinstance(change, RateChange):
                yield change.at, channels[change.channel], change.rate

    async def set_rate(self, channel: ExportedChannel, rate: float | None) -> None:
        """Change a channel's limit, as an operator does."""
        await self._put(channel, rate)

    def given_up(self) -> set[str]:
        """Return the ids of events that are dead or have lapsed."""
        tables: MemoryTables = self.account.tables
        return {server_id(row.pk, row.rk) for rows in tables.peek(EVENTS) for row in rows if row.props.get("state") in ("dead", "lapsed")}

    def idle(self) -> bool:
        """Return True if no shard has an open event."""
        return not any(True for rows in self.account.tables.peek(SHARDS) for _ in rows)

    async def scan_fleets(self) -> None:
        """Run the jobs of leases and of maintenance every 15 s, as the app's sweep does."""
        for number in range(10**9):
            jobs = ("lease_scan", "stale_scan") if number % 4 == 0 else ("lease_scan",)
            for job in jobs:
                try:
                    await self.app.timers.run_once(job)
                except StorageError:
                    continue
            await asyncio.sleep(15.0)


def spread_events(events: Iterable[PlannedEvent], first: Millis, chance: random.Random) -> Iterator[PlannedEvent]:
    """Yield each event `times` times, in the order of due times: the repeated ones at random within its minute.

    Overdue events are due at `first`.
    """
    found: list[PlannedEvent] = []
    for event in events:
        due = max(first, event.due)
        found.append(PlannedEvent(due, event.channel, event.size, event.key))
        start = max(first, due - due % MINUTE)
        room = max(1, due - due % MINUTE + MINUTE - start)
        found += [PlannedEvent(start + chance.randrange(room), event.channel, event.size, event.key) for _ in range(event.times - 1)]
    found.sort(key=lambda event: event.due)
    yield from found


def _event_text(event: PlannedEvent) -> str:
    shown: dict[str, Any] = {"due": to_text(event.due), "channel": event.channel, "payload": "x" * max(0, event.size - 2)}
    if event.key is not None:
        shown["ordering_key"] = f"key-{event.key}"
    return json.dumps(shown)


def _settings() -> GivenSettings:
    given: dict[str, Any] = {
        "storage": "UseDevelopmentStorage=true",
        "local": True,
        "admin_key": LOCAL_ADMIN_KEY,
        "signing_key": LOCAL_SIGNING_KEY,
        "egress_allow": "127.0.0.0/8",
        "receiver": ADDRESS,
        "wakes": "off",
    }
    return GivenSettings(**given)
