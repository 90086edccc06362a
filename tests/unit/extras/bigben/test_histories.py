"""Random histories of BigBen's ids against a model: the statuses, what `find` shows, and what is delivered in the end."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from shared.core.clock import Millis, to_text
from tests.unit.scheduler.harness import World

BASE = "/api/bigben/events"
PAYLOADS: tuple[Any, ...] = ("P1", "P2", {"x": 1}, '{"y": 2}', 5)
AHEAD = (-3_600_000, -1_000, 0, 20_000, 60_000, 600_000)
NEAR: Millis = 6_500
"""Milliseconds before and after its time in which an event may be claimed or under delivery: other answers are correct then, too."""


class Content(NamedTuple):
    """The content of an event. due: the time that was asked for."""

    due: Millis
    payload: Any
    option: str


class History:
    """Some ids and their model: the last content of each, and whether it waits, is over, or was removed."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._last: dict[str, tuple[Content, str]] = {}
        self._sent: dict[str, Millis] = {}
        self.delivered: list[Content] = []

    def settle(self) -> None:
        """Note what has been delivered by now."""
        for name, (content, state) in self._last.items():
            if state == "waits" and max(content.due, self._sent[name]) + NEAR <= self._world.now:
                self._last[name] = content, "over"
                self.delivered.append(content)

    def is_near(self, name: str) -> bool:
        content, state = self._last.get(name, (None, ""))
        return content is not None and state == "waits" and max(content.due, self._sent[name]) - NEAR < self._world.now

    async def act(self) -> None:
        """Make one request about an id, and compare its answer with the model."""
        name = self._random.choice(("a", "an id of BigBen!", "c"))
        self.settle()
        if self.is_near(name):
            return
        chance = self._random.random()
        await (self.remove(name) if chance < 0.2 else self.find(name) if chance < 0.35 else self.upsert(name))

    async def remove(self, name: str) -> None:
        reply = await self._schedule({"id": name, "tenant": "demo", "mode": "REMOVE"})
        content, state = self._last.get(name, (None, ""))
        assert reply.get("eventStatus") == {"": None, "waits": "DELETED", "over": "PROCESSED", "removed": "DELETED"}[state]
        if content is not None and state == "waits":
            self._last[name] = content, "removed"

    async def find(self, name: str) -> None:
        answer = await self._world.demo.call("GET", f"{BASE}/find?id={name.replace(' ', '%20')}&tenant=demo")
        content, state = self._last.get(name, (None, "removed"))
        assert answer.status == (404 if state == "removed" else 200)
        if content is not None and state != "removed":
            shown = answer.json()
            assert shown["eventStatus"] == {"waits": "UN_PROCESSED", "over": "PROCESSED"}[state]
            assert (shown["id"], shown["payload"], shown["deliveryOption"]) == (name, content.payload, content.option)

    async def upsert(self, name: str) -> None:
        random, now = self._random, self._world.now
        former, state = self._last.get(name, (None, ""))
        content = Content(now + random.choice(AHEAD), random.choice(PAYLOADS), random.choice(("FULL_EVENT", "PAYLOAD_ONLY")))
        if former is not None and random.random() < 0.35:
            content = former
        request = {"id": name, "tenant": "demo", "eventTime": to_text(content.due), "payload": content.payload}
        reply = await self._schedule(request | {"deliveryOption": content.option})
        status = "TRIGGERED" if content.due <= now else "UPDATED" if state == "waits" else "ACCEPTED"
        if state == "over" and content == former:
            status = "PROCESSED"
        else:
            self._last[name], self._sent[name] = (content, "waits"), now
        assert (reply["eventStatus"], "eventId" in reply) == (status, status != "TRIGGERED")

    async def _schedule(self, request: dict[str, Any]) -> dict[str, Any]:
        [reply] = (await self._world.demo.post(f"{BASE}/schedule", [request])).json()
        assert isinstance(reply, dict)
        return reply


@pytest.mark.parametrize("seed", range(10))
async def test_each_content_that_was_not_replaced_or_removed_is_delivered_once(seed: int) -> None:
    random, world = Random(seed), await World().open()
    history = History(world, random)
    for _ in range(14):
        await history.act()
        await world.run(random.choice((1, 7, 12, 40)))
    await world.run(700)
    history.settle()
    assert len(world.receiver.received) == len(history.delivered)
    await world.close()
