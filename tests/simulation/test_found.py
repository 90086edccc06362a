"""Findings of the simulation, each as the shortest history that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from shared.core.clock import SettableClock
from shared.engine.effects import LOST, Effect, Steps, Wait, Write
from shared.engine.thread_runner import ThreadRunner
from shared.scheduler.keys import Address
from shared.scheduler.protocol import changing
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, EVENTS
from shared.storage.ports import Insert, Merge, Props
from tests.simulation.history import World
from tests.simulation.world.api import call

SHARD, ROW = "23-aaaaaaaaaaaaaaaa-t0", "e000"
HERE = Address(SHARD, ROW)
LATER = 1_800_000_060_000


class _FaultyRunner(ThreadRunner):
    """Runs steps on the in-memory store. What `lost` returns for a write is its answer; with None, the store answers."""

    def __init__(self, tables: MemoryTables, lost: Callable[[Write], Any]) -> None:
        super().__init__(MemoryBlockingTables(tables), lambda: 0.0, 1.0)
        self._lost = lost

    def perform(self, effect: Effect | Wait) -> Any:
        return (isinstance(effect, Write) and self._lost(effect)) or super().perform(effect)


class Store:
    """The in-memory store with one event. A play runs on it effect by effect, and may lose the answers to its writes."""

    def __init__(self) -> None:
        self.tables = MemoryTables(SettableClock())
        run_through(self.tables.ensure(ALL_TABLES))
        event: Props = {"state": "scheduled", "due": 1_800_000_030_000, "id": "a", "size": 1, "body": "1"}
        run_through(self.tables.write(EVENTS, SHARD, [Insert(ROW, event)]))

    def run(self, steps: Steps[Any], lost: Callable[[Write], Any] = lambda write: None) -> Any:
        return _FaultyRunner(self.tables, lost).run(steps)

    def write(self, effect: Write) -> Any:
        return run_through(self.tables.write(*effect))

    def deliver(self) -> None:
        """Finish the move, and settle the copy."""
        row = self.run(changing.find(HERE))
        run_through(self.tables.write(EVENTS, row.pk, [Merge(row.rk, {"state": "delivered"}, row.etag)]))


def move() -> Steps[Any]:
    return changing.move(HERE, LATER, {}, "nonce")


def lost_answer(store: Store, then: Callable[[], object]) -> Callable[[Write], Any]:
    """Return a fault for `Store.run`: the first write is applied, then `then` is called, and the answer to the write is lost."""
    lost: list[Write] = []

    def fault(write: Write) -> Any:
        if lost:
            return None
        lost.append(write)
        store.write(write)
        then()
        return LOST

    return fault


def test_a_move_with_a_lost_answer_is_reported_done_though_another_request_finished_it() -> None:
    store = Store()
    moved = store.run(move(), lost_answer(store, store.deliver))
    assert isinstance(moved, changing.Done)
    assert (moved.row.props["due"], moved.row.props["state"]) == (LATER, "delivered")


def test_a_move_that_arrives_late_is_reported_done_though_another_request_finished_it() -> None:
    store = Store()
    writes: list[Write] = []

    def late(write: Write) -> Any:
        writes.append(write)
        if len(writes) == 1:
            return LOST
        if len(writes) == 2:
            # The first one arrives now, just before the second.
            store.write(writes[0])
            store.deliver()
        return None

    moved = store.run(move(), late)
    assert isinstance(moved, changing.Done)
    assert (moved.row.props["due"], moved.row.props["state"]) == (LATER, "delivered")


def test_an_edit_whose_answer_was_lost_shows_the_event_where_it_lives() -> None:
    store = Store()

    def move_by_another_request() -> None:
        assert isinstance(store.run(changing.move(HERE, LATER, {}, "another")), changing.Done)

    edited = store.run(changing.edit(HERE, {"body": "2"}), lost_answer(store, move_by_another_request))
    assert isinstance(edited, changing.Done)
    assert (edited.row.props["state"], edited.row.props["due"], edited.row.props["body"]) == ("scheduled", LATER, "2")


def test_creating_a_moved_event_again_shows_it_where_it_lives() -> None:
    world = World(0, "none")
    event = orjson.dumps({"id": "a", "delay": "PT5M", "payload": 1})

    async def scenario() -> None:
        instance = await world.open()
        await call(instance, "events_create", "t0", body=event)
        # Without the shortcut in the id row, as after a crash.
        address = await instance.app.scheduler.lookup.address("t0", "a")
        assert address is not None
        await instance.app.scheduler.runner.run(changing.move(address, world.start + 600_000, {}, "nonce"))
        again = await call(instance, "events_create", "t0", body=event)
        assert again.status == 200
        assert again.body == (await call(instance, "events_get", "t0", "a")).body
        assert again.body["state"] == "scheduled"

    world.script(scenario())
