"""Two changes of one event at once: the second runs before each storage call of the first in turn. Neither undoes the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shared.core.clock import to_text
from tests.integration.api.calls import EVENTS
from tests.unit.scheduler.harness import START, World

LARGER = {"payload": "x" * 2_000}
LATER = to_text(START + 7_200_000)


class Between:
    """Runs something before one of the storage calls that are made while it is active."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at, self._then = -1, self._nothing
        self.calls = 0
        for name in ("get", "query", "write"):
            monkeypatch.setattr(world.tables, name, self._wrapped(getattr(world.tables, name)))

    async def _nothing(self) -> None:
        return None

    def before(self, at: int, then: Callable[[], Awaitable[Any]]) -> None:
        """Run `then` before the storage call with the number `at` from now on."""
        self.calls, self._at, self._then = 0, at, then

    def _wrapped(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._at + 1:
                self._at = -1
                await self._then()
            return await call(*args, **options)

        return wrapped


@pytest.mark.parametrize("flex", ["PT0S", "PT10M"])
@pytest.mark.parametrize("second", ["moved", "fired"])
async def test_larger_payload_and_another_due_time_are_both_kept(
    world: World, monkeypatch: pytest.MonkeyPatch, second: str, flex: str
) -> None:
    between = Between(world, monkeypatch)
    at, ended = 0, False
    while not ended:
        url = f"{EVENTS}/{(await world.demo.create(delay='PT1H', flex=flex))['id']}"
        answers = []

        async def change(url: str = url, answers: list[Any] = answers) -> None:
            call = world.demo.patch(url, {"due": LATER}) if second == "moved" else world.demo.post(f"{url}/fire")
            answers.append(await call)

        between.before(at, change)
        changed = await world.demo.patch(url, LARGER)
        ended = not answers
        if not ended:
            shown = (await world.demo.get(url)).json()
            assert (changed.status, answers[0].status) == (200, 200 if second == "moved" else 202), (at, changed, answers)
            assert shown["payload"] == LARGER["payload"], at
            assert shown["due"] == answers[0].json()["due"], at
        at += 1
    assert at > 5
