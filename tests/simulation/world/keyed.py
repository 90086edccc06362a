"""Events with ordering keys, all due at one instant: how fast a key goes, and how long a small key waits beside a large one.

The world is that of `quiet`: virtual time, the app's own code, the platform's polling, storage that answers in 8 ms, a receiver in 5 ms.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson

from shared.core.clock import Millis, to_text
from shared.delivery.channels.model import KeyLimits, QueueChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict

from ..history import World, quietly
from .api import LINES, call
from .quiet import ONE_WAY, SCAN, STALE, Figures, Platform

LEAD: Millis = 120_000
TAKES = 0.005
"""Seconds that the receiver takes."""


@dataclass(slots=True)
class KeyFigures:
    """Starts of deliveries by key, in milliseconds after the due time."""

    starts: dict[str, list[Millis]] = field(default_factory=lambda: defaultdict(list))
    disorder: int = 0
    """Deliveries that began before the one ahead of them had ended, or out of order."""
    requests: float = 0.0
    """Requests to storage for each event, from the first post to the end."""

    def rate(self, key: str) -> float:
        """Return the deliveries a second of a key."""
        found = self.starts[key]
        return (len(found) - 1) * 1000 / max(1, found[-1] - found[0])


class _Receiver:
    def __init__(self, world: World, figures: KeyFigures, due: Millis) -> None:
        self._world, self._figures, self._due = world, figures, due
        self._order: dict[str, list[tuple[str, float, float]]] = defaultdict(list)

    def at(self, instance: Any) -> _Receiver:
        return self

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        key = str(orjson.loads(delivery.body))
        began = self._world.loop.now
        self._figures.starts[key].append(self._world.start + round(began * 1000) - self._due)
        await asyncio.sleep(TAKES)
        self._order[key].append((delivery.id, began, self._world.loop.now))
        return Verdict("delivered", 200)

    def disorder(self) -> int:
        """Count the deliveries of all keys that began too early."""
        return sum(one[0] >= two[0] or one[2] > two[1] for found in self._order.values() for one, two in pairwise(found))

    async def close(self) -> None:
        """Nothing to release."""


def play(keys: dict[str, int], limits: KeyLimits, instances: int = 2, *, mixed: bool = False, shard: int = 990) -> KeyFigures:
    """Deliver this number of events of each key, due at one instant.

    mixed: neighbours in the order are in different shards. shard: events of a shard.
    """
    world = World(1, "none")
    profile = world.profile
    profile.instances, profile.tenants, profile.skew, profile.drift, profile.page_rows = 0, 1, 0.0, 0.0, 1000
    profile.events_per_second = profile.open_events = None
    world.settings = world.settings.model_copy(
        update={"shard_events": shard, "deliver_concurrency": 256, "target_concurrency": 64, "backlog_per_second": 2000}
    )
    figures, requests = KeyFigures(), Figures()
    world.latency = lambda instance: ONE_WAY  # type: ignore[method-assign]

    def note(instance: Any, what: str, subject: Any, result: Any = None) -> None:
        if what in ("get", "query", "write", "send"):
            requests.requests[what] += 1

    world.note = note  # type: ignore[method-assign]
    due = world.start + LEAD
    receiver = _Receiver(world, figures, due)
    world.receiver = receiver  # type: ignore[assignment]

    async def story() -> KeyFigures:
        world.host = platform = Platform(world, requests)
        keeper = await world.open()
        await keeper.app.directory.channels.put("t0", "default", QueueChannel(type="queue", queue="sink", per_key=limits))
        for _ in range(instances):
            platform.run(platform.start())
        sweeps = [world.loop.create_task(platform.sweep(keeper, period, offset)) for period, offset in ((SCAN, 0.0), (STALE, 20.0))]
        requests.requests.clear()
        events = [
            {"id": f"{key}-{number * 7919 % 999_983 if mixed else number:06d}", "due": to_text(due), "payload": key, "ordering_key": key}
            for key, count in keys.items()
            for number in range(count)
        ]
        for first in range(0, len(events), 1000):
            body = b"\n".join(orjson.dumps(event) for event in events[first : first + 1000])
            answer = await call(keeper, "events_batch", "t0", body=body, media=LINES)
            assert answer.body["accepted"] == len(events[first : first + 1000]), answer.body
        while sum(map(len, figures.starts.values())) < len(events):  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        for each in sweeps:
            each.cancel()
        if platform.failures:
            raise platform.failures[0]
        figures.disorder, figures.requests = receiver.disorder(), requests.requests.total() / len(events)
        return figures

    with quietly(99):
        return world.script(story())
