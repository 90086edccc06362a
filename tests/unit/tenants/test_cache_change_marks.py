"""Marks of changes: cached rows that have not changed are not read again, and changes show as soon as without marks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shared.core.clock import Clock, Millis, SettableClock
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.model import HttpChannel, QueueChannel
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, TENANTS
from shared.storage.ports import ANY, Delete, Op
from shared.tenants.cache import CHANGE_WITHIN, LONGEST, MARKS, PK_CHANGES, SETTLED_AFTER, group_of
from shared.tenants.model import KeyIn, Tenant
from shared.tenants.store import CHANNEL_TTL, TenantDirectory
from shared.whatif.twin.loop import VirtualLoop
from tests.faults import Faults, Perform, Request

from .conftest import World, make_settings

QUEUE = QueueChannel(type="queue", queue="alarms")
WEBHOOK = HttpChannel(type="http", url="https://example.com/")


async def tenants(world: World, count: int) -> list[str]:
    """Make tenants t0, t1, ... with a channel `c`; return a key of each."""
    keys = []
    for number in range(count):
        await world.directory.put(f"t{number}", Tenant())
        await world.directory.channels.put(f"t{number}", "c", QUEUE)
        keys.append((await world.directory.keys.issue(f"t{number}", KeyIn(scopes=["events"]))).key)
    return keys


async def use(directory: TenantDirectory, keys: Sequence[str]) -> None:
    """Read what a request and a delivery of each tenant read."""
    for number, key in enumerate(keys):
        assert await directory.key(key) is not None
        assert await directory.tenant(f"t{number}") is not None
        assert await directory.target(f"t{number}", "c") is not None


async def gets(world: World, keys: Sequence[str], seconds: int) -> int:
    """Use everything on the other instance once a second; return the reads that this made."""
    before = world.tables.transactions["get"]
    for _ in range(seconds):
        await use(world.other, keys)
        await world.clock.advance(1.0)
    return world.tables.transactions["get"] - before


async def test_rows_of_tenants_that_do_not_change_are_read_once_a_minute(world: World) -> None:
    keys = await tenants(world, 20)
    # The rows of 20 tenants, and one look at the marks a second.
    assert await gets(world, keys, int(LONGEST)) <= 3 * 20 + LONGEST
    assert await gets(world, keys, int(LONGEST)) <= 3 * 20 + LONGEST


async def test_a_lone_tenant_costs_no_more_reads_than_without_marks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = await tenants(world, 1)

    async def changed(tenant: str, read_at: float, ttl: float) -> None:
        """Without marks, every row that is too old is read again."""

    plain = TenantDirectory(world.tables, world.clock, world.settings)
    monkeypatch.setattr(plain._marks, "unchanged", changed)
    for pause in (0.3, 1.0, 2.0, 5.1, 40.0):
        made = Counter[str]()
        for _ in range(20):
            for name, directory in (("with", world.other), ("without", plain)):
                before = world.tables.transactions["get"]
                await use(directory, keys)
                made[name] += world.tables.transactions["get"] - before
            await world.clock.advance(pause)
        assert made["with"] <= made["without"], pause


@pytest.mark.parametrize("used_for", [3, 20, 40])
async def test_a_pause_shows_within_a_second_and_a_revocation_within_five(world: World, used_for: int) -> None:
    keys = await tenants(world, 1)
    await gets(world, keys, used_for)
    await world.directory.channels.pause("t0", "c", True)
    [listed], _ = await world.directory.keys.list("t0", 10)
    await world.directory.keys.revoke("t0", listed.prefix)
    await world.clock.advance(CHANNEL_TTL)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert target.paused
    await world.clock.advance(4.0)
    assert await world.other.key(keys[0]) is None


async def test_a_deleted_tenant_and_its_channels_are_refused_within_their_ages(world: World) -> None:
    keys = await tenants(world, 1)
    await gets(world, keys, 20)
    await world.directory.delete("t0")
    await world.clock.advance(5.0)
    assert await world.other.key(keys[0]) is None
    assert await world.other.tenant("t0") is None
    assert await world.other.target("t0", "c") is None


async def test_a_row_read_between_its_mark_and_its_change_is_not_kept(world: World) -> None:
    keys = await tenants(world, 1)
    await gets(world, keys, 20)
    held, go = asyncio.Event(), asyncio.Event()
    world.tables.hold = hold_once(lambda op: op.rk == "channel:c", held, go)
    pausing = asyncio.ensure_future(world.directory.channels.pause("t0", "c", True))
    await held.wait()
    # The mark is stored, the change is not: the row is read again and again meanwhile, and shows the former state.
    await gets(world, keys, int(CHANGE_WITHIN) - 1)
    go.set()
    await pausing
    await world.clock.advance(CHANNEL_TTL)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert target.paused


async def test_a_change_that_took_too_long_is_marked_once_more_before_it_is_acknowledged(world: World) -> None:
    keys = await tenants(world, 1)
    await gets(world, keys, 20)
    held, go = asyncio.Event(), asyncio.Event()
    world.tables.hold = hold_once(lambda op: op.rk == "channel:c", held, go)
    pausing = asyncio.ensure_future(world.directory.channels.pause("t0", "c", True))
    await held.wait()
    await gets(world, keys, int(SETTLED_AFTER) + 5)
    go.set()
    await pausing
    await world.clock.advance(CHANNEL_TTL)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert target.paused


async def test_a_process_that_looks_for_the_first_time_trusts_no_row_read_at_the_time_of_a_change(world: World) -> None:
    keys = await tenants(world, 1)
    await world.directory.channels.pause("t0", "c", False)
    held, go = asyncio.Event(), asyncio.Event()
    world.tables.hold = hold_once(lambda op: op.rk == "channel:c", held, go)
    pausing = asyncio.ensure_future(world.directory.channels.pause("t0", "c", True))
    await held.wait()
    # The other instance has read nothing before, so it cannot know which group the mark of this moment belongs to.
    await use(world.other, keys)
    await world.clock.advance(CHANNEL_TTL)
    await use(world.other, keys)
    go.set()
    await pausing
    await world.clock.advance(CHANNEL_TTL)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert target.paused


async def test_a_change_without_a_mark_shows_after_a_minute(world: World) -> None:
    keys = await tenants(world, 1)
    await use(world.other, keys)
    [row] = [row for row in world.tables.rows(TENANTS) if row.pk.startswith("key:")]
    await world.tables.write(TENANTS, row.pk, [Delete(row.rk, ANY)])
    await world.clock.advance(LONGEST - 0.1)
    assert await world.other.key(keys[0]) is not None
    await world.clock.advance(0.1)
    assert await world.other.key(keys[0]) is None


async def test_rows_are_read_while_the_marks_cannot_be(world: World) -> None:
    keys = await tenants(world, 1)
    await gets(world, keys, 5)
    world.tables.unreadable = lambda pk: pk == PK_CHANGES
    await world.directory.channels.pause("t0", "c", True)
    await world.clock.advance(CHANNEL_TTL)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert target.paused


async def test_a_change_that_cannot_be_marked_is_not_made(world: World) -> None:
    await tenants(world, 1)

    def away(pk: str, op: Op) -> None:
        if pk == PK_CHANGES:
            raise Unavailable("503")

    world.tables.before.append(away)
    with pytest.raises(Unavailable):
        await world.directory.channels.pause("t0", "c", True)
    world.tables.before.remove(away)
    target = await world.directory.target("t0", "c")
    assert target is not None
    assert not target.paused


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_to_a_mark_is_no_failure(world: World, applied: bool) -> None:
    await tenants(world, 1)
    for _ in range(2):
        world.tables.lose(lambda pk, op: pk == PK_CHANGES, applied=applied)
    await world.directory.channels.pause("t0", "c", True)
    row = await world.tables.get(TENANTS, PK_CHANGES, MARKS)
    assert row is not None
    assert group_of("t0") in row.props


async def test_a_mark_whose_answer_is_always_lost_fails_the_change(world: World) -> None:
    await tenants(world, 1)

    def lose(pk: str, op: Op) -> None:
        if pk == PK_CHANGES:
            raise OutcomeUnknown("the answer was lost")

    world.tables.after.append(lose)
    with pytest.raises(OutcomeUnknown):
        await world.directory.channels.pause("t0", "c", True)


async def test_a_former_secret_ends_at_its_time(world: World) -> None:
    await world.directory.put("t0", Tenant())
    await world.directory.channels.put("t0", "c", WEBHOOK)
    until = (await world.directory.channels.rotate("t0", "c")).previous_until
    assert until is not None
    await world.clock.advance((until - world.clock.now()) / 1000 - 3.0)
    for _ in range(3):
        target = await world.other.target("t0", "c")
        assert target is not None
        assert len(target.secrets) == 2
        await world.clock.advance(1.0)
    target = await world.other.target("t0", "c")
    assert target is not None
    assert len(target.secrets) == 1


def hold_once(when: Callable[[Op], bool], held: asyncio.Event, go: asyncio.Event) -> Callable[[Op], Any]:
    """Return a hook that stops the first write that fits until `go` is set."""
    left = [True]

    async def hook(op: Op) -> None:
        if when(op) and left:
            left.clear()
            held.set()
            await go.wait()

    return hook


class LoopClock(SettableClock):
    """The time of the running loop, which is virtual here."""

    def now(self) -> Millis:
        return 1_800_000_000_000 + round(1000 * self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def slow_tables(clock: Clock, chance: random.Random) -> Faults:
    """Tables whose reads take up to 0.1 s, and writes up to 24 s."""

    def pause(kind: str) -> float:
        return chance.choice((0.0, 0.3, chance.uniform(0.0, 12.0)) if kind == "write" else (0.0, 0.01, 0.05))

    async def plan(request: Request, perform: Perform) -> Any:
        if request.kind == "query":
            return await perform()
        await asyncio.sleep(pause(request.kind))
        answer = await perform()
        await asyncio.sleep(pause(request.kind))
        return answer

    return Faults(MemoryTables(clock), plan)


@pytest.mark.parametrize("seed", range(5))
def test_no_answer_is_older_than_its_age_whatever_writes_take(seed: int) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(_reads_beside_changes(random.Random(seed))) > 1000


async def _reads_beside_changes(chance: random.Random) -> int:
    """Pause channels on one instance and read them on another, in which no answer may be too old. Return the reads."""
    clock = LoopClock()
    tables = slow_tables(clock, chance)
    await tables.ensure(ALL_TABLES)
    writer, reader = (TenantDirectory(tables, clock, make_settings()) for _ in range(2))
    acknowledged: dict[str, list[tuple[float, int]]] = {"t0": [], "t1": [], "t2": []}
    """The reasons of each channel's pauses, which are numbers, with the time of the acknowledgement."""
    reads = 0

    async def change() -> None:
        for name in acknowledged:
            await writer.put(name, Tenant())
            await writer.channels.put(name, "c", QUEUE)
        for number in range(1, 41):
            name = chance.choice(list(acknowledged))
            await writer.channels.pause(name, "c", True, str(number))
            acknowledged[name].append((clock.monotonic(), number))
            await asyncio.sleep(chance.choice((0.0, 1.0, 20.0)))

    async def read(name: str) -> None:
        nonlocal reads
        while True:
            began = clock.monotonic()
            target = await reader.target(name, "c")
            seen = int(target.reason or 0) if target is not None else 0
            # An answer may be as old as its age, and the read that it comes from began for another caller.
            must = [number for at, number in acknowledged[name] if at < began - CHANNEL_TTL - 0.3]
            assert seen >= max(must, default=0), (name, seen, must)
            reads += 1
            await asyncio.sleep(chance.choice((0.1, 0.5, 1.1, 3.0)))

    changing = asyncio.ensure_future(change())
    readers = [asyncio.ensure_future(read(name)) for name in acknowledged for _ in range(2)]
    await asyncio.wait((changing, *readers), return_when=asyncio.FIRST_COMPLETED)
    for each in (changing, *readers):
        each.cancel()
    for each in await asyncio.gather(changing, *readers, return_exceptions=True):
        if isinstance(each, Exception):
            raise each
    return reads
