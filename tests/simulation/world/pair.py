"""Histories of a mirrored pair: two accounts, of which either may go away at any instant, and an operator who changes sides.

The plans, clients and promises are those of the other histories; every event is `mirrored`. What is shown before it is in both accounts
(a read, never an acknowledgement) may be taken back by a failover, so what clients only saw is forgotten when the sides change.
"""

from __future__ import annotations

import asyncio
from functools import cache
from random import Random
from typing import Any

from pydantic import SecretStr

from shared.app.application import Application, build
from shared.core.errors import Problem, StorageError
from shared.core.settings import Settings
from shared.scheduler.keys import GATE, HOME, MIRRORED, id_partition, place_of
from shared.storage import spread_storage
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_QUEUES, ALL_TABLES, EVENTS, IDS, LEDGER, QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS
from shared.storage.ports import Props
from shared.storage.several.account_stamps import stamped

from ..history import Report, TrueClock, World, quietly
from .api import ADMIN_KEY
from .host import POISON
from .instance import Instance
from .storage import SimQueues, SimTables

FIRST, SECOND = "1:", "2:"
THERE = "-there"
"""Ends the names of the second account's queues."""
SECOND_STAMP: Props = {"place": MIRRORED, "whole": True}
STORIES = {"loss": 30, "loss and back": 35, "alarm": 15, "lost again": 10, "second away": 10}
"""Faults of the accounts, with weights."""
LAG = 6.0
"""Seconds by which the copy of a settlement may be behind while owners live: 5, and a claim's tick."""
STOPPED = 31.0
"""Seconds after which no process of the overtaken side starts a delivery."""
ASK_AGAIN = 2.0
FOLLOW_EVERY = 60.0


@cache
def pair_settings(shard_events: int, slots: int) -> Settings:
    """Like the world of the other histories, with a second account."""
    second = "AccountName=devstoreaccount1;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/b;QueueEndpoint=http://127.0.0.1:2/b"
    return Settings(
        storage=SecretStr("UseDevelopmentStorage=true"),
        mirror=SecretStr(second),
        admin_key=SecretStr(ADMIN_KEY),
        shard_events=shard_events,
        deliver_concurrency=slots,
        target_concurrency=slots,
        wakes="off",
    )


class PairWorld(World):
    """One history over two accounts."""

    triggers = tuple(queue + suffix for suffix in ("", THERE) for queue in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST))

    def __init__(self, seed: int, style: str | None = None, story: str | None = None) -> None:
        # A chance of its own: the rest of a history is what its seed is elsewhere.
        self.fate = Random(f"{seed}/pair")
        self.story = story or self.fate.choices(list(STORIES), list(STORIES.values()))[0]
        # Some events are `fast` in some histories: in one account only, so not where that is lost for good.
        mixed = self.story in ("loss and back", "alarm", "second away") and self.fate.random() < 0.4
        self.durability, self.asked = (None, "mirrored") if mixed else ("mirrored", None)
        super().__init__(seed, style)
        # To change sides twice takes that long.
        self.profile.trouble += 150.0 if self.troubled else 0.0
        self.settings = pair_settings(self.profile.shard_events, self.profile.slots)
        self.there = MemoryTables(TrueClock(self), page_rows=self.profile.page_rows)
        self._gone: set[str] = set()
        self._cut: dict[tuple[str, str], float] = {}
        self.changes: list[tuple[float, float]] = []
        """Between which instants deliveries may not have been copied, or may be the overtaken side's."""
        self.active = FIRST
        self._operator = self.loop.create_task(self._operate())
        self._follower = self.loop.create_task(self._follow())

    # -- what processes see

    @property
    def exact(self) -> bool:
        return False

    def shut(self, shard: str) -> bool:
        """The way back shuts what only the first had."""
        return self.counts["failovers"] > 0

    @property
    def accounts(self) -> tuple[MemoryTables, ...]:
        return (self.tables, self.there)

    @property
    def serving(self) -> MemoryTables:
        return self.there if self.active == SECOND else self.tables

    def application(self, instance: Instance) -> Application:
        first = SimTables(instance, self.tables, FIRST)
        second = SimTables(instance, self.there, SECOND)
        queues, others = SimQueues(instance, FIRST), SimQueues(instance, SECOND)
        storage = spread_storage([first], queues, instance.clock, second=(second, others))
        return build(self.settings, self.ports(instance, storage))

    def away(self, instance: Instance, side: str) -> bool:
        return side in self._gone or (instance.faulty and self._cut.get((instance.name, side), 0.0) > self.loop.now)

    def lost(self, side: str) -> bool:
        return side in self._gone

    def queue_of(self, queue: str, side: str) -> str:
        return queue + THERE if side == SECOND else queue

    def plain(self, queue: str) -> str:
        return queue.replace(THERE, "")

    async def app_of(self, instance: Instance, queue: str) -> Application:
        if self.plain(queue) == QUEUE_INGEST:
            return await instance.app.serving()
        return self.holder_of(instance, queue)

    def holder_of(self, instance: Instance, queue: str) -> Application:
        there = instance.app.other if THERE in queue else instance.app
        assert there is not None
        return there

    def unpolled(self, queue: str) -> bool:
        return (SECOND if THERE in queue else FIRST) in self._gone

    async def open(self) -> Instance:
        for tables, more in ((self.tables, {"place": HOME, "places": "", "given_up": "", "overtaken": False}), (self.there, SECOND_STAMP)):
            await tables.ensure(ALL_TABLES)
            await stamped(tables, {"home": "home", "pair": "pair", **more})
        names = [queue + THERE for queue in ALL_QUEUES]
        await self.queues.ensure((*names, *(name + POISON for name in names)))
        return await super().open()

    # -- what happens to the accounts

    async def _operate(self) -> None:
        fate = self.fate
        await asyncio.sleep(fate.uniform(0.0, self.profile.window + 60.0))
        if fate.random() < 0.3 and (unlucky := self.host.any()) is not None:
            # One process does not reach the second for a while.
            self._cut[unlucky.name, SECOND] = self.loop.now + fate.uniform(5.0, 120.0)
            self.note(unlucky, "does not reach the second", self._cut[unlucky.name, SECOND])
        if self.story == "second away":
            self._lose(SECOND)
            await asyncio.sleep(fate.uniform(1.0, 120.0))
            self._find(SECOND)
            return
        since = self.loop.now
        if self.story != "alarm":
            self._lose(FIRST)
            await asyncio.sleep(fate.choice((0.0, fate.uniform(0.0, 60.0))))
        await self._fail_over(since)
        if self.story == "loss":
            return
        await asyncio.sleep(fate.choice((0.0, fate.uniform(0.0, 200.0))))
        self._find(FIRST)
        await asyncio.sleep(fate.uniform(0.0, 30.0))
        await self._ask("fail_back", lambda answer: answer["active"] == "first" or answer["state"] == "copying")
        if self.story == "lost again":
            await asyncio.sleep(fate.uniform(0.0, 60.0))
            since = self.loop.now
            self._lose(FIRST)
            await self._fail_over(since)
            return
        await self._ask("", lambda answer: (answer["active"], answer["state"]) == ("first", "serving"))
        await self._turned(FIRST)

    def _lose(self, side: str) -> None:
        self.note(None, "an account goes away", side)
        self._gone.add(side)

    def _find(self, side: str) -> None:
        self.note(None, "an account is back", side)
        self._gone.discard(side)

    async def _fail_over(self, since: float) -> None:
        # From now on a read may be of either account.
        self._forget_reads(None)
        await self._ask("fail_over", lambda answer: answer["active"] == "second")
        self.changes.append((since - LAG, self.loop.now + STOPPED))
        await self._ask("", lambda answer: answer["active"] == "second" and answer["state"] in ("serving", "copying"))
        await self._turned(SECOND)

    async def _reset(self) -> None:
        """A resume of the last seconds may be gone with the account: it is asked for again, as the runbook says."""
        for number in range(self.profile.tenants):
            while True:
                if (f"t{number}", "default") in self.ward.paused or await self.ward.resume(f"t{number}", "default"):
                    break
                # The call failed, for example because its process does not reach the account that serves.
                await asyncio.sleep(ASK_AGAIN)

    async def _turned(self, side: str) -> None:
        self.note(None, "the sides have changed", side)
        self.counts["failovers" if side == SECOND else "failbacks"] += 1
        self.active = side
        self._forget_reads(self.counts["failovers"] + self.counts["failbacks"])
        await self._reset()

    def _forget_reads(self, sides: int | None) -> None:
        self.sides = sides
        for story in self.oracle.stories:
            story.seen = None

    async def _ask(self, verb: str, until: Any) -> None:
        """Ask for a change of sides until the answer shows it, as an operator would."""
        while True:
            instance = self.host.any()
            if instance is not None:
                task = instance.spawn(self._status_after(instance, verb))
                await asyncio.wait((task,))
                if not task.cancelled() and instance.alive:
                    error = task.exception()
                    if error is not None and not isinstance(error, StorageError | Problem):
                        self.host.expected(error)
                    if error is None and until(task.result()):
                        return
            await asyncio.sleep(ASK_AGAIN)

    @staticmethod
    async def _status_after(instance: Instance, verb: str) -> Any:
        await instance.ready()
        failover = (await instance.app.serving()).failover
        if verb:
            await getattr(failover, verb)()
        return await failover.state()

    async def _follow(self) -> None:
        """The timer that copies settings, and carries a way back on."""
        while True:
            await asyncio.sleep(FOLLOW_EVERY)
            if (instance := self.host.any()) is not None:
                task = instance.spawn(self._swept(instance))
                await asyncio.wait((task,))
                if not task.cancelled() and instance.alive and (error := task.exception()) is not None:
                    self.host.expected(error)

    @staticmethod
    async def _swept(instance: Instance) -> None:
        await instance.ready()
        await (await instance.app.serving()).failover.sweep(instance.clock.now())

    async def operated(self) -> None:
        await self._operator

    # -- what must hold

    async def verdict(self, judge: Instance) -> None:
        self._follower.cancel()
        # To be looked at from outside: lists need every account.
        self._gone.clear()
        self._doubles()
        if self.active == FIRST:
            self._in_step()
        await super().verdict(judge)
        if self.profile.retention and self.active == FIRST:
            rows = [row for table in (EVENTS, LEDGER) for row in self.rows_of(self.there, table)]
            # Of shards that only the first had, and that were never filled, what shut them may stay.
            left = [(row.pk, row.rk) for row in rows if row.props.get("bucket", True) and row.props.get("accepted", True)]
            # Ids of events that were never acknowledged stay: in both accounts, or in the second if they were posted while it served.
            ids = {(row.pk, row.rk) for row in self.rows_of(self.tables, IDS)}
            unacknowledged = [story for story in self.oracle.stories if story.chosen and not story.acked]
            ids |= {(id_partition(story.tenant, str(story.chosen)), str(story.chosen)) for story in unacknowledged}
            left += [key for row in self.rows_of(self.there, IDS) if (key := (row.pk, row.rk)) not in ids]
            if left:
                self.fail(f"retention leaves in the copy {left[:6]}")

    def _doubles(self) -> None:
        """Without other faults an attempt is made again only if the first was made within the lag of a change of sides."""
        if self.profile.style != "none":
            return
        for story in self.oracle.stories:
            made: dict[tuple[int, int], float] = {}
            for start in story.starts:
                before = made.setdefault((start.attempt, start.due), start.at)
                if before == start.at:
                    continue
                self.counts["doubles"] += 1
                if not any(begin <= before <= end for begin, end in self.changes):
                    self.fail(f"{story}: attempt {start.attempt} at {before:.1f} s is made again at {start.at:.1f} s: {self.changes}")

    def _in_step(self) -> None:
        """At the end the copy says what the first says."""
        copies = {(row.pk, row.rk): row for row in self.rows_of(self.there, EVENTS)}
        for row in self.rows_of(self.tables, EVENTS):
            copy = copies.pop((row.pk, row.rk), None)
            if row.rk == GATE or place_of(row.pk) != MIRRORED:
                continue
            answer = {name: row.props.get(name) for name in ("id", "state", "due", "target", "body")}
            if copy is None or answer != {name: copy.props.get(name) for name in answer}:
                self.fail(f"the copy of {row.pk}/{row.rk} is {copy}; it is {row}")
        left = [key for key in copies if key[1] != GATE]
        if left:
            self.fail(f"only the copy has {left[:6]}")


def simulate_pair(seed: int, style: str | None = None, story: str | None = None) -> Report:
    """One history of a mirrored pair. The same seed gives the same one."""
    world = PairWorld(seed, style, story)
    with quietly(world.profile.group):
        return world.play()
