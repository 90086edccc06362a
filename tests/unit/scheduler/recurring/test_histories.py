"""Whole lives of a schedule, drawn at random: sweeps, deliveries and changes; every occurrence is delivered once, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from shared.core.clock import Millis
from shared.scheduler.recurring import rules
from shared.scheduler.recurring.definition import Definition
from tests.unit.scheduler.harness import World

from .faults import MINUTE, URL, instant_of

NEAR: Millis = 4_000
"""An occurrence so soon after a change may be firing already: then it is delivered, whatever the change says."""
RULES: tuple[tuple[str, Millis], ...] = (("* * * * *", MINUTE), ("*/2 * * * *", 2 * MINUTE))


@dataclass
class Life:
    """The requested changes, by time."""

    world: World
    rule: tuple[str, Millis] = RULES[0]
    payload: int = 0
    active: bool = False
    since: Millis = 0
    wanted: set[Millis] = field(default_factory=set)
    allowed: set[Millis] = field(default_factory=set)

    def spec(self) -> dict[str, Any]:
        return {"cron": self.rule[0], "payload": self.payload, "catch_up": {"policy": "none"}}

    def close(self) -> None:
        """The rule that has held since the last change ends now."""
        now, (_, step) = self.world.now, self.rule
        if self.active:
            due = range(self.since - self.since % step + step, now + NEAR + 1, step)
            self.wanted |= {at for at in due if at <= now}
            self.allowed |= set(due)
        self.since = now

    async def act(self, random: Random) -> None:
        verb = random.choice(("payload", "payload", "rule", "pause", "resume", "recreate"))
        if verb == "recreate":
            assert (await self.world.demo.delete(URL)).status == 204
            self.close()
            self.active = False
            await self.world.run(random.choice((0.0, 1.0, 20.0)))
            await self.put(random)
        elif verb in ("pause", "resume"):
            self.close()
            assert (await self.world.demo.post(f"{URL}/{verb}")).status == 200
            self.active = verb == "resume"
        else:
            await self.put(random, rule=verb == "rule")

    async def put(self, random: Random, *, rule: bool = True) -> None:
        self.close()
        paused = (await self.world.demo.get(URL)).status == 200 and not self.active
        self.payload += 1
        if rule:
            self.rule = random.choice(RULES)
        assert (await self.world.demo.put(URL, self.spec())).status in (200, 201)
        self.active = not paused


async def live_through(seed: int) -> None:
    random = Random(seed)
    world = await World().open()
    try:
        life = Life(world)
        life.since = world.now
        await life.put(random)
        for _ in range(random.randint(2, 6)):
            # Often just before a full minute, where a change meets what is about to fire.
            rest = MINUTE - world.now % MINUTE
            await world.run(max(0.0, random.choice((rest - 5000, rest - 2500, rest - 800, rest + 100, random.randint(0, 150_000))) / 1000))
            await life.act(random)
        await world.run(200)
        life.close()
        delivered = Counter(instant_of(hit.id) for hit in world.receiver.received)
        assert [at for at, times in delivered.items() if times > 1] == [], "delivered twice"
        assert delivered.keys() - life.allowed == set(), "delivered although nothing asked for it"
        # What is due within the last moment is still on its way.
        assert {at for at in life.wanted if at < world.now - 1000} - delivered.keys() == set(), "never delivered"
    finally:
        # Let what the host has only just started get to where it can be ended.
        await world.clock.advance(1)
        await world.close()


async def test_every_occurrence_of_a_life_is_delivered_once_and_no_other() -> None:
    for seed in range(12):
        await live_through(seed)


async def test_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rules.undone

    def forgets(definition: Definition, cancelled: Iterable[Millis], taken: Iterable[Millis], now: Millis) -> Definition:
        """Forget the events that were firing already when the change came."""
        return whole(definition, cancelled, (), now)

    monkeypatch.setattr(rules, "undone", forgets)
    with pytest.raises(AssertionError, match="delivered twice"):
        for seed in range(10, 40):
            await live_through(seed)
