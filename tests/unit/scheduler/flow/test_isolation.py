"""One dead and one slow endpoint with hundreds of due events do not delay other channels' events, of the same tenant or of another.

The host is played with its bounds: 16 messages at a time, the next when 8 or fewer are under way, for each of the two queues. The same
traffic runs with all endpoints well and with two bad ones, in virtual time.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.scheduler.firing import invocations
from shared.storage.names import QUEUE_RETRIES, QUEUE_SHARDS
from shared.storage.ports import Message

from ..harness import SCAN, START, World

DELIVERED = Verdict("delivered", 200)
PER_SHARD = 30
BAD = 900
"""Events of each bad endpoint, due at one instant: 30 shards each."""
GOOD = 150
"""Events of each good one, due over `SPAN`; and one more each second, three seconds ahead."""
BATCH, THRESHOLD = 16, 8
"""Fewer than host.json lets in: it is the shares that count, and so these shards are more than all owners."""
TIMEOUT = 15.0
"""The channels' time-out, in seconds."""
DUE = 20
"""Seconds from the start at which the bad ones' events are due."""
COLD = 1_500
"""Milliseconds that it may take to see that a receiver which nothing is known of does not answer."""
SPAN = 60
"""Seconds over which the good events are due."""


class Hosted(World):
    """A world whose host runs no more invocations at once than the platform does."""

    def __init__(self, bad: bool, takes: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.bad, self.takes = bad, takes
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.late: dict[str, list[tuple[Millis, Millis]]] = {}
        """By channel: when it was due, in milliseconds from the start, and how late it was."""
        self.attempts: Counter[str] = Counter()
        self.receiver.send = self._answer  # type: ignore[method-assign]

    async def _answer(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        name = f"{target.tenant}/{target.name}"
        self.attempts[name] += 1
        if self.bad and target.name == "dead":
            return Verdict("retry", None, "no connection")
        if self.bad and target.name == "slow":
            await self.clock.sleep(self.takes)
            return DELIVERED if self.takes < TIMEOUT else Verdict("retry", None, "no answer in time")
        self.late.setdefault(name, []).append((delivery.due - START, self.now - delivery.due))
        await self.clock.sleep(0.005)
        return DELIVERED

    async def run(self, seconds: float, step: float = 0.25) -> None:
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 1e-9:
            if self.clock.monotonic() - self._scanned >= SCAN:
                self._scanned = self.clock.monotonic()
                self._start(self.app.timers.run_once("scheduler_scan"))
            for queue in (QUEUE_SHARDS, QUEUE_RETRIES):
                if self.running[queue] <= THRESHOLD:
                    for message in await self.queues.receive(queue, limit=BATCH):
                        self.running[queue] += 1
                        self.most[queue] = max(self.most[queue], self.running[queue])
                        self._start(self._serve(queue, message))
            await self.clock.advance(min(step, left), settle=10)
        if self.problems:
            raise self.problems[0]

    async def _serve(self, queue: str, message: Message) -> None:
        try:
            await super()._serve(queue, message)
        finally:
            self.running[queue] -= 1


def figures(world: Hosted, name: str, since: float = 0.0) -> tuple[Millis, Millis, Millis]:
    """p50, p99 and max of the lateness of what was due from `since` seconds on, in milliseconds."""
    found = sorted(late for due, late in world.late[name] if due >= 1000 * since)
    return found[len(found) // 2], found[min(len(found) - 1, int(0.99 * len(found)))], found[-1]


async def lateness(bad: bool, mixed: bool, takes: float) -> Hosted:
    """The record of a run. `mixed`: the bad ones' events lie in the same shards as the good ones' of their tenant."""
    world = Hosted(bad, takes, shard_events=PER_SHARD, owners=BATCH + THRESHOLD)
    await world.open()
    try:
        acme = await world.tenant("acme")
        for path in ("acme/channels/fine", *(f"demo/channels/{name}" for name in ("dead", "slow", "fine"))):
            assert (await world.admin.put(f"/api/v1/tenants/{path}", {"type": "http", "url": "http://localhost:7072/"})).status == 201
        fine = [{"delay": f"PT{20 + number * SPAN / GOOD:.3f}S", "payload": 1, "channel": "fine"} for number in range(GOOD)]
        body = [{"delay": "PT20S", "payload": 1, "channel": name} for name in ("dead", "slow") for _ in range(BAD)] + fine
        if mixed:
            Random(1).shuffle(body)
        for at in range(0, len(body), 1000):
            assert (await world.demo.post("/api/v1/events/batch", body[at : at + 1000])).json()["rejected"] == 0
        assert (await acme.post("/api/v1/events/batch", fine)).json()["rejected"] == 0
        await world.run(10)
        for _ in range(SPAN):
            await world.demo.create(delay="PT3S", channel="fine")
            await acme.create(delay="PT3S", channel="fine")
            await world.run(1)
        await world.run(40)
        return world
    finally:
        await world.close()


@pytest.mark.parametrize("takes", [TIMEOUT, 14.0], ids=["never answers", "answers after 14 s"])
@pytest.mark.parametrize("mixed", [False, True], ids=["own shards", "same shards, without small ones"])
async def test_bad_endpoints_do_not_delay_other_channels_and_tenants(mixed: bool, takes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if mixed:
        # As with large shards: each keeps its slot.
        monkeypatch.setattr(invocations, "SMALL_SHARD", -1)
    well, ill = await lateness(False, mixed, takes), await lateness(True, mixed, takes)
    for name in ("demo/fine", "acme/fine"):
        assert len(well.late[name]) == len(ill.late[name]) == GOOD + SPAN
        assert min(late for _, late in ill.late[name]) >= 0
        before, after = figures(well, name), figures(ill, name)
        print(f"{name}: p50, p99, max of lateness in ms: all well {before}, beside the bad ones {after}")
        assert after[0] == before[0] and after[1] <= before[1] + COLD and after[2] <= before[2] + COLD
        before, after = figures(well, name, DUE + 5), figures(ill, name, DUE + 5)
        print(f"{name}, five seconds after the first of them: all well {before}, beside the bad ones {after}")
        assert after[1] <= before[1] + 20 and after[2] <= before[2] + 20
    print(f"attempts {dict(ill.attempts)}, owners at once {dict(ill.most)}, {dict(ill.app.scheduler.counters)}")
    assert ill.most[QUEUE_SHARDS] <= BATCH + THRESHOLD and well.attempts["demo/dead"] == well.attempts["demo/slow"] == BAD
    assert ill.attempts["demo/dead"] < 50 and ill.attempts["demo/slow"] < (50 if takes == TIMEOUT else BAD)
