"""Several coordinators at once on storage that is slow, loses answers and is away at times: one takes at a time, whatever happens."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

from shared.checkpoints.model import PublishIn, TurnReportIn
from shared.checkpoints.rows import LATEST
from shared.checkpoints.service.service import CheckpointService, nothing_pending
from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown, Problem, StorageError, Unavailable
from shared.core.ids import SeededIds
from shared.engine.async_runner import AsyncRunner
from shared.fleets.definition import fleet_of
from shared.fleets.model import FleetIn
from shared.leases.rows import FLEET, fleet_key
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, FLEETS, TURNS
from shared.storage.ports import Insert
from tests.faults import Faults, Perform, Request

TENANT, NAME = "demo", "db"
KEY = fleet_key(TENANT, NAME)
SEEDS = 8
ROUNDS = 120


def unreliable(clock: SettableClock, dice: random.Random, odds: int) -> Faults:
    """Others come in between any two requests; one write in `odds` fails in one of three ways."""

    async def plan(request: Request, perform: Perform) -> Any:
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
        if request.kind != "write":
            return await perform()
        fault = dice.randrange(odds) if odds else 9
        if fault == 0:
            raise Unavailable("away")
        if fault == 1:
            raise OutcomeUnknown("the request is lost")
        answer = await perform()
        if fault == 2:
            raise OutcomeUnknown("the answer is lost")
        return answer

    return Faults(MemoryTables(clock), plan)


@dataclass
class Member:
    """A replica that follows docs/reference/checkpoints.md. taking: its turn, until `until` (seconds); made: its unpublished checkpoint."""

    name: str
    role: str = "secondary"
    term: int = 1
    life: int = 0
    seq: int = 0
    last: int = 0
    taking: int = 0
    until: float = 0.0
    tried: int = 0

    def begins(self) -> None:
        self.life, self.seq, self.taking = self.life + 1, 0, 0

    def takes(self, now: float) -> bool:
        return bool(self.taking) and now < self.until and self.role == "secondary"


class Scene:
    """One history of a seed."""

    def __init__(self, seed: int, odds: int) -> None:
        self.dice = random.Random(f"turns {seed}")
        self.clock = SettableClock()
        self.tables = unreliable(self.clock, self.dice, odds)
        self.apps = [
            CheckpointService(self.tables, AsyncRunner(self.tables, self.clock), self.clock, SeededIds(f"{seed} {number}"), nothing_pending)
            for number in range(3)
        ]
        self.members = [Member("a", "primary"), *(Member(name) for name in "bcde")]
        self.latest, self.sequence, self.handed = 0, 0, set[int]()
        self.failed = 0

    async def open(self) -> None:
        await self.tables.ensure(ALL_TABLES)
        spec = FleetIn.model_validate({"partitions": 1, "checkpoints": {"timeout": {"initial": "PT2M", "max": "PT5M"}}})
        await self.tables.inner.write(FLEETS, KEY, [Insert(FLEET, fleet_of(spec, 0).props())])

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def check(self) -> None:
        takers = [each.name for each in self.members if each.takes(self.now)]
        assert len(takers) <= 1, f"{takers} take at once"

    async def report(self, me: Member) -> None:
        app, sent = self.dice.choice(self.apps), self.now
        me.seq += 1
        seq, life = me.seq, me.life
        report = TurnReportIn.model_validate(
            {
                "seq": seq,
                "role": me.role,
                "term": me.term,
                "applied": self.sequence,
                "last_checkpoint": me.last,
                "taking": {"epoch": me.taking} if me.taking else None,
                "mono_ms": round(sent * 1000) + 1,
                "incarnation": f"{me.name}{me.life}",
            }
        )
        try:
            answer = await app.report(TENANT, NAME, me.name, report)
        except StorageError:
            self.failed += 1
            return
        except Problem as problem:
            if problem.code == "unknown-replica" and (seq, life) == (me.seq, me.life):
                me.begins()
            if problem.code in ("stale-term", "term-conflict"):
                me.role = "secondary"
            return
        if (seq, life) != (me.seq, me.life):
            return
        if me.taking in answer["revoked"]:
            me.taking = 0
        if answer["turn"] is not None and not me.taking and me.role == "secondary" and answer["turn"]["epoch"] > me.tried:
            epoch = answer["turn"]["epoch"]
            me.taking, me.until, me.tried = epoch, sent + answer["turn"]["limit_ms"] / 1000, epoch
            self.handed.add(epoch)
            self.check()

    async def publish(self, me: Member) -> None:
        epoch = me.taking
        self.sequence += 1
        sequence = self.sequence
        body = PublishIn(node=me.name, sequence=sequence, location="x", bytes=1)
        # Its body is over before it publishes.
        me.until = min(me.until, self.now)
        me.last = sequence
        try:
            latest = await self.dice.choice(self.apps).publish(TENANT, NAME, epoch, body)
        except StorageError:
            self.failed += 1
        except Problem as problem:
            assert problem.code == "late"
        else:
            assert latest == (sequence >= self.latest) or self.latest > sequence
            self.latest = max(self.latest, sequence)
        if me.taking == epoch:
            me.taking = 0

    async def act(self, me: Member) -> None:
        chance = self.dice.random()
        if chance < 0.02:
            me.begins()
        elif chance < 0.03:
            # Elected; the one before learns of it from its next answer.
            me.role, me.term, me.taking = "primary", max(each.term for each in self.members) + 1, 0
        if me.taking and (self.now >= me.until or chance > 0.9):
            if self.now < me.until:
                await self.publish(me)
            else:
                me.taking = 0
        await self.report(me)

    async def scan(self) -> None:
        app = self.dice.choice(self.apps)
        try:
            await app.run_once(self.clock.now())
            if self.dice.random() < 0.05:
                await app.revoke(TENANT, NAME, max(self.handed, default=1), "why not", "operator")
        except StorageError:
            self.failed += 1
        except Problem as problem:
            assert problem.code in ("already-ended", "not-found")

    async def play(self) -> None:
        await self.open()
        for _ in range(ROUNDS):
            some = [each for each in self.members if self.dice.random() < 0.8]
            await asyncio.gather(*map(self.act, some), *([self.scan()] if self.dice.random() < 0.3 else []))
            self.check()
            await self.clock.advance(self.dice.choice([1, 5, 5, 5, 20]), settle=2)
            self.check()


@pytest.mark.parametrize("odds", [0, 12])
async def test_one_replica_takes_at_a_time_with_any_coordinator_and_any_losses(odds: int) -> None:
    handed = failed = 0
    for seed in range(SEEDS):
        scene = Scene(seed, odds)
        await scene.play()
        handed += len(scene.handed)
        failed += scene.failed
        found = await MemoryTables.get(scene.tables, TURNS, KEY, LATEST)
        assert found is not None and found.props["sequence"] >= scene.latest
    assert handed > 10 * SEEDS, "turns come and go"
    assert (failed > 0) == (odds > 0)
