"""A mirrored pair whose timers have stopped: planned wakes, and sweeps by messages, carry it through a failover and a failback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.app.application import Application
from shared.storage.names import QUEUE_SHARDS, QUEUE_SWEEPS

from . import pair as pair_world
from .pair import QUEUES, MortalQueues, PairWorld


class Silent(PairWorld):
    """A pair whose host runs no timer, and serves all queues."""

    async def run(self, seconds: float, step: float = 0.5) -> None:
        # No tick is due.
        self._scanned = self.clock.monotonic() + seconds
        await super().run(seconds, step)

    async def _hand(self, app: Application, queues: MortalQueues, queue: str, message: Any) -> None:
        if queue == QUEUE_SWEEPS:
            await (await self.app.serving()).timers.run_soon(message.text)
        elif queue == QUEUE_SHARDS:
            await app.scheduler.serve_message(message.text)
        else:
            await super()._hand(app, queues, queue, message)
            return
        await queues.delete(queue, message)


@pytest.fixture
async def silent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Silent]:
    monkeypatch.setattr(pair_world, "QUEUES", (*QUEUES, QUEUE_SWEEPS))
    world = Silent(wakes="auto")
    await world.open()
    yield world
    await world.close()


async def create(pair: Silent, delay: str) -> str:
    return str((await pair.demo.create(delay=delay, durability="mirrored"))["id"])


async def lateness(pair: Silent, event: str) -> int:
    found = await pair.demo.event(event)
    assert found["state"] == "delivered", found
    return int(found["late_ms"])


async def test_events_of_a_pair_are_punctual_after_a_failover_and_after_a_failback(silent: Silent) -> None:
    early = [await create(silent, delay) for delay in ("PT1M", "PT5M", "PT8M", "PT30M", "PT50M")]
    await silent.run(200)
    await silent.fail_over()
    early += [await create(silent, delay) for delay in ("PT2M", "PT7M", "PT40M")]
    await silent.run(900)
    silent.find_first()
    # Requests leave an account alone for a moment after it did not answer.
    await silent.run(30)
    assert (await silent.admin.post("/api/v1/storage/failback", {})).status == 202
    await silent.run(600)
    assert (await silent.storage_status())["mirror"]["state"] == "serving"
    early.append(await create(silent, "PT3M"))
    await silent.run(2_000)
    assert [await lateness(silent, each) for each in early] == [0] * len(early)


async def test_what_became_due_during_a_failback_is_delivered_as_soon_as_the_first_account_serves(silent: Silent) -> None:
    await silent.fail_over()
    await silent.run(400)
    silent.find_first()
    # Requests leave an account alone for a moment after it did not answer.
    await silent.run(5)
    due = await create(silent, "PT35S")
    assert (await silent.admin.post("/api/v1/storage/failback", {})).status == 202
    state = ""
    while state != "serving":
        await silent.run(1)
        status = await silent.storage_status()
        state = status["mirror"]["state"] if status["mirror"]["active"] == "first" else ""
    await silent.run(10)
    assert silent.deliveries() == {due: 1}


async def test_a_process_that_starts_looks_at_the_account_that_serves(silent: Silent) -> None:
    await silent.fail_over()
    due = await create(silent, "PT6M")
    silent.second_queues._queues[QUEUE_SHARDS].messages.clear()
    await silent.run(90)
    await silent.start_again(wakes="auto")
    silent._start(silent.app.recover())
    await silent.run(400)
    assert await lateness(silent, due) == 0
