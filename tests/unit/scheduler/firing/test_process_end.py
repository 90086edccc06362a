"""A process of the same machine ends: the next one takes its shards at once, and nothing of a process that may live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import cast

import pytest

from shared.core.process_identity import ProcessIdentity
from shared.scheduler import rules, timings
from shared.scheduler.protocol.dispatch import ShardMessage, parse_message
from shared.scheduler.shard.gate import Gate, parse_gate, process_of
from shared.storage.names import EVENTS, QUEUE_SHARDS
from shared.storage.ports import Applied, Merge, Op, Row, WriteRefused

from ..harness import START, World


class Machine:
    """The processes of one machine that have ended."""

    def __init__(self) -> None:
        self.ended: set[str] = set()


class PlayedProcess:
    """The part of `ProcessIdentity` that owners use."""

    first = False

    def __init__(self, name: str, machine: Machine) -> None:
        self.name, self._machine = name, machine

    def has_ended(self, name: str) -> bool:
        return name in self._machine.ended


@pytest.fixture
async def machine() -> Machine:
    return Machine()


@pytest.fixture
async def world(machine: Machine) -> AsyncIterator[World]:
    """Process `p1` on the machine."""
    world = World()
    start(world, machine, "p1")
    await world.open()
    yield world
    await world.close()


def start(world: World, machine: Machine | None, name: str) -> None:
    """Let the next `open` play another process; machine None: one that knows no process."""
    world.process = cast(ProcessIdentity, PlayedProcess(name, machine)) if machine is not None else None


def kill(world: World) -> None:
    """End the process at once. Its messages stay hidden, as the queue's lease is ten minutes."""
    for task in list(world._tasks):
        task.cancel()


def gate_of(world: World) -> Row:
    [found] = [row for row in world.rows(EVENTS) if row.rk == "gate"]
    return found


async def under_delivery(world: World) -> str:
    """An event whose delivery runs in an owner that nothing else will end."""
    world.receiver.takes = 10_000.0
    made = await world.demo.create(delay="PT1S")
    await world.run(5)
    world.receiver.takes = 0.0
    return str(made["id"])


async def recover(world: World, seconds: float) -> None:
    """Run a young process without timers: they are silent after a hard kill."""
    world._scanned = world.clock.monotonic() + 10_000
    young = asyncio.ensure_future(world.app.recover())
    await world.run(seconds)
    young.cancel()
    await asyncio.gather(young, return_exceptions=True)


async def test_shards_of_an_ended_process_are_served_within_seconds_without_a_timer(world: World, machine: Machine) -> None:
    made = await under_delivery(world)
    assert process_of(parse_gate(gate_of(world).props)) == "p1"
    kill(world)
    machine.ended.add("p1")
    start(world, machine, "p2")
    await world.open()
    died = world.now
    await recover(world, 10)
    [got] = world.receiver.received
    assert (got.delivery.id, got.delivery.attempt) == (made, 2)
    assert got.began - died <= 5_000
    [row] = world.events()
    assert (row.props["state"], row.props["flag"]) == ("delivered", True)


async def test_small_shards_that_shared_an_invocation_come_back_within_seconds(world: World, machine: Machine) -> None:
    """Their messages are gone, except that of the invocation that led."""
    clients = [await world.tenant(f"t{number}") for number in range(4)]
    made = [str((await client.create(delay="PT5S"))["id"]) for client in clients]
    await world.run(3.5)
    assert len(world._tasks) == 1 and all(row.props["state"] == "owned" for row in world.rows(EVENTS) if row.rk == "gate")
    kill(world)
    machine.ended.add("p1")
    start(world, machine, "p2")
    await world.open()
    died = world.now
    await recover(world, 20)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert all(got.began - died <= 10_000 for got in world.receiver.received)


@pytest.mark.parametrize("young", ["knows nothing of p1", "knows no process"])
async def test_shards_of_a_process_that_may_live_wait_until_their_gate_is_old(world: World, machine: Machine, young: str) -> None:
    await under_delivery(world)
    silent_from = gate_of(world).timestamp
    kill(world)
    start(world, machine if young == "knows nothing of p1" else None, "p2")
    await world.open()
    await recover(world, 20)
    assert world.receiver.received == []
    await recover(world, 60)
    [got] = world.receiver.received
    assert got.began >= silent_from + timings.OWNER_SILENT


async def test_living_owner_of_a_young_process_is_left_alone(world: World) -> None:
    await under_delivery(world)
    before = gate_of(world)
    await recover(world, 20)
    after = gate_of(world)
    assert (after.props["holder"], after.props["epoch"]) == (before.props["holder"], before.props["epoch"])
    assert world.app.scheduler.counters["shards_busy"] == 0


async def test_message_that_an_ended_process_had_taken_is_sent_again(world: World, machine: Machine) -> None:
    await world.demo.create(delay="PT1S")
    for _ in range(8):
        await world.clock.advance(0.25)
        await world.queues.receive(QUEUE_SHARDS, lease=600.0)  # taken, and not served
    assert gate_of(world).props["state"] == "open"
    machine.ended.add("p1")
    start(world, machine, "p2")
    await world.open()
    await recover(world, 20)
    assert len(world.receiver.delivered()) == 1


@pytest.mark.parametrize(
    ("ended", "rounds", "since_wake", "since_resent", "asks"),
    [
        (True, 0, -timings.WAKE_EARLIEST, 10**9, True),
        (True, 0, -timings.WAKE_EARLIEST - 1, 10**9, False),
        (True, 3, 0, 8_000, True),
        (True, 3, 0, 7_999, False),
        (True, 4, 0, 10**9, False),
        (False, 0, 8_000, 10**9, True),
        (False, 0, 7_999, 10**9, False),
        (False, 1, 60_000, 10**9, False),
    ],
)
def test_young_process_asks_for_a_shard_a_few_times_and_for_a_doubtful_one_once(
    ended: bool, rounds: int, since_wake: int, since_resent: int, asks: bool
) -> None:
    now = 2_000_000_000
    assert rules.may_recover(rules.MessageState("sent", now - since_wake, now - since_resent, rounds), now, ended=ended) is asks
    assert not rules.may_recover(rules.MessageState("resting", now - since_wake, now - since_resent, rounds), now, ended=ended)


async def test_processes_that_start_together_send_one_message_for_a_shard_in_a_long_queue(world: World, machine: Machine) -> None:
    await world.demo.create(delay="PT1S")
    await world.clock.advance(15)
    others = [world.app]
    for name in ("p2", "p3"):
        start(world, machine, name)
        others.append((await world.open()).app)
    counts = [await app.scheduler.recovery.run_once(world.now) for app in others]
    assert sorted(count["resent"] for count in counts) == [0, 0, 1]
    await world.clock.advance(30)
    assert [(await app.scheduler.recovery.run_once(world.now))["resent"] for app in others] == [0, 0, 0]


async def test_proof_that_arrives_late_takes_nothing_from_a_later_owner(world: World, machine: Machine) -> None:
    await under_delivery(world)
    gate = gate_of(world)
    message = ShardMessage(gate.pk, str(gate.props["index"]), ended="an owner before")
    await world.app.scheduler.firing.serve(message.text())
    # The invocation of the owner may have taken the message over.
    await world.run(0.5)
    assert world.app.scheduler.counters["shards_busy"] == 1
    assert gate_of(world).props["holder"] == gate.props["holder"]


async def test_proof_travels_to_a_process_that_cannot_judge_itself(world: World, machine: Machine) -> None:
    await under_delivery(world)
    kill(world)
    start(world, None, "elsewhere")
    await world.open()
    gate = gate_of(world)
    text = ShardMessage(gate.pk, str(gate.props["index"]), ended=str(gate.props["holder"])).text()
    await world.queues.send(QUEUE_SHARDS, text)
    world._scanned = world.clock.monotonic() + 10_000
    await world.run(5)
    assert len(world.receiver.delivered()) == 1


async def test_gate_that_a_former_release_took_does_not_show_the_process_of_the_owner_before(world: World, machine: Machine) -> None:
    await under_delivery(world)
    gate = gate_of(world)
    # A former release merges all properties that it knows, and leaves this one.
    await world.tables.write(EVENTS, gate.pk, (Merge("gate", {"holder": "o-former", "epoch": 2}, gate.etag),))
    machine.ended.add("p1")
    assert gate_of(world).props["process"] == f"{gate.props['holder']} p1"
    assert process_of(parse_gate(gate_of(world).props)) == ""
    kill(world)
    start(world, machine, "p2")
    await world.open()
    await recover(world, 15)
    assert world.receiver.received == []


def test_message_names_an_ended_owner_only_with_a_proof() -> None:
    plain = ShardMessage("s", "i")
    assert plain.text() == '{"shard":"s","index":"i"}'
    assert parse_message('{"shard":"s","index":"i","ended":"o1"}') == replace(plain, ended="o1")


def test_only_an_owned_gate_shows_a_process() -> None:
    gate = Gate("owned", "o1", process="o1 machine 5 100")
    assert process_of(gate) == "machine 5 100"
    assert [process_of(replace(gate, state=state)) for state in ("open", "resting", "done")] == ["", "", ""]
    assert process_of(Gate("owned", "o1")) == ""


async def test_answer_is_settled_within_a_second_while_other_deliveries_run_and_transactions_take_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = world.tables.write

    async def slow(table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        await world.clock.sleep(0.4 if table == EVENTS else 0.0)
        return await write(table, pk, ops)

    body = [{"due": f"2027-01-15T08:00:{10 + at // 10:02}.{at % 10}00Z", "payload": at} for at in range(100)]
    posting = asyncio.ensure_future(world.demo.post("/api/v1/events/batch", body))
    await world.run(5, 0.05)
    assert (await posting).json()["accepted"] == 100
    monkeypatch.setattr(world.tables, "write", slow)
    settled: dict[str, int] = {}
    while len(settled) < 100:
        await world.run(0.05, 0.05)
        for row in world.events():
            if row.props["state"] == "delivered":
                settled.setdefault(str(row.props["id"]), world.now)
        assert world.now < START + 40_000
    waits = sorted(settled[got.delivery.id] - got.began for got in world.receiver.received)
    # From the answer to the transaction that was just sent, and the 0.4 s that storage takes for it.
    assert waits[-1] <= 1_000 + 400 + 100
