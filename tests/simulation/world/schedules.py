"""Histories with recurring schedules: clients create, change, pause, resume and delete them while everything else goes wrong.

The plans, events and promises are those of the other histories. A schedule is judged by what its client knows: the instant of a change lies
between the first request for it and the answer, both widened by the error of the clocks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

import orjson

from shared.app.timers import Counts
from shared.core.clock import Millis, to_text
from shared.core.durations import format_duration
from shared.delivery.channels import Sender
from shared.delivery.channels.ports import OutgoingDelivery
from shared.scheduler.recurring.definition import definition_of
from shared.scheduler.recurring.model import Policy
from shared.storage.names import SCHEDULES

from ..checks.invariants import only_owners_start
from ..history import Report, World, quietly
from ..workload import UNKNOWN, Answer, Clients
from .api import call
from .instance import Instance
from .marked import MarkedSender, PlannedAnswer

CLAIMED: Millis = 3_000
"""An event that is due within this time may be claimed: a change does not reach it any more."""
MOST_OCCURRENCES = 60
CALM_AFTER = 600.0
"""Seconds after which faults end although clients still repeat requests: a change of many events needs many requests, and begins anew when
one of them fails."""

type Verb = Literal["create", "change", "pause", "resume", "delete"]


class Change(NamedTuple):
    """A change that was acknowledged. It took effect between `low` and `high`, by any clock."""

    verb: Verb
    low: Millis
    high: Millis


@dataclass(slots=True, eq=False)
class Schedule:
    """One schedule, as its client knows it."""

    number: int
    tenant: str
    policy: Policy
    every: Millis
    start: Millis
    end: Millis
    version: int = 0
    asked: Millis | None = None
    """Time at which its creation was first requested; None before."""
    resuming: Millis | None = None
    """Time at which a resume was requested that is not acknowledged yet; None without one."""
    changes: list[Change] = field(default_factory=list)
    versions: dict[int, Millis] = field(default_factory=dict)
    """Payloads, with the times at which they were acknowledged."""
    ids: dict[Millis, set[str]] = field(default_factory=dict)
    """Ids of the events that were delivered, by occurrence."""
    accepted: Counter[Millis] = field(default_factory=Counter)
    """Deliveries that the receiver accepted, by occurrence."""

    @property
    def name(self) -> str:
        return f"schedule-{self.number}"

    @property
    def occurrences(self) -> range:
        return range(self.start, self.end, self.every)

    def __str__(self) -> str:
        return f"{self.name} ({self.tenant}, every {self.every} ms, {self.policy}, {[tuple(each) for each in self.changes]})"

    def stopped(self, at: Millis, slack: Millis) -> Change | None:
        """Return the pause or delete after which the occurrence of an instant must not come, or None."""
        held: Change | None = None
        for each in self.changes:
            if each.verb in ("pause", "delete") and each.high + slack + CLAIMED < at:
                held = each
            elif each.verb == "resume" and each.low - slack <= at:
                held = None
        return None if self.resuming is not None and self.resuming - slack <= at else held


class ScheduledWorld(World):
    """One history with schedules."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        # A random generator of its own, so that the rest of a history is the same as without schedules.
        self.fortune = Random(f"{seed}/schedules")
        self.schedules: list[Schedule] = []
        super().__init__(seed, style)
        self.slack = 1 if not self.profile.skew else 2 * self.profile.skew + 2_000
        """Most milliseconds between true time and the time by which a process decides."""

    def senders(self, instance: Instance) -> dict[str, Sender]:
        plain = super().senders(instance)
        return {**plain, "queue": MarkedSender(self, instance, plain["queue"], "s", self.arrived)}

    async def lived(self) -> None:
        self.loop.call_later(CALM_AFTER, self._calm)
        fortune = self.fortune
        for number in range(fortune.choice((1, 1, 2, 3))):
            every = 1000 * fortune.choice((5, 7, 20, 60))
            # Some begin in the past, and most while clients still make requests.
            start = self.start - self.start % 1000 + 1000 * fortune.randrange(-100, round(self.profile.window) + 60)
            count = fortune.randint(2, MOST_OCCURRENCES)
            tenant = f"t{fortune.randrange(self.profile.tenants)}"
            policy: Policy = fortune.choice(("all", "all", "last", "none"))
            self.schedules.append(Schedule(number, tenant, policy, every, start, start + every * count))
        await asyncio.gather(super().lived(), *(_Client(self, each).run() for each in self.schedules))

    def more_of(self, schedule: Schedule) -> dict[str, Any]:
        """Return further members of a schedule's document."""
        return {}

    def excused(self, schedule: Schedule, at: Millis) -> bool:
        """Return True for an occurrence that need not be accepted."""
        return False

    def _calm(self) -> None:
        self.troubled = False

    def unfinished(self) -> bool:
        return super().unfinished() or any(
            found.undo is not None or (found.pointer != "" and not found.deleted)
            for found in (definition_of(row) for row in self.rows(SCHEDULES) if row.rk.startswith("d:"))
        )

    async def sweep(self, instance: Instance) -> Counts:
        recurring = (await instance.app.serving()).scheduler.recurring
        counts, occurrences = await asyncio.gather(super().sweep(instance), recurring.chain.sweep(instance.clock.now()))
        return counts | {"recurring": occurrences}

    def last_due(self) -> Millis:
        return max(super().last_due(), *(each.end for each in self.schedules if each.asked is not None), 0)

    @property
    def true(self) -> Millis:
        """The time now."""
        return self.start + int(self.loop.now * 1000 + 1e-6)

    def arrived(self, instance: Instance, delivery: OutgoingDelivery) -> PlannedAnswer:
        """Check a delivery: it is of an occurrence, at its time, with its content, and under one id."""
        body = orjson.loads(delivery.body)
        schedule, version = self.schedules[int(body["s"])], int(body["v"])
        at, true, slack = delivery.due, self.true, self.slack
        self.note(instance, "delivers", (schedule.name, f"attempt {delivery.attempt}, due {at}, body {version}"), None)
        self.counts["occurrences delivered"] += 1
        if not instance.alive:
            self.fail(f"{schedule}: delivered by a dead instance")
        only_owners_start(self, instance, delivery.id, schedule.tenant)
        if at not in schedule.occurrences:
            self.fail(f"{schedule}: delivered for {at}, which is no occurrence")
        if true + max(0, instance.clock.skew) < at or delivery.fired < at:
            self.fail(f"{schedule}: delivered early, at {true} by true time, {instance.clock.now()} by the instance's clock, due {at}")
        if schedule.asked is None or at < schedule.asked - slack:
            self.fail(f"{schedule}: delivered for {at}, before its creation was asked for at {schedule.asked}")
        if (held := schedule.stopped(at, slack)) is not None:
            self.fail(f"{schedule}: delivered for {at}, although a {held.verb} was acknowledged at {held.high}")
        newest = max((each for each, acked in schedule.versions.items() if acked + slack + CLAIMED < at), default=0)
        if not newest <= version <= schedule.version:
            self.fail(f"{schedule}: delivered for {at} with body {version}; it may have {newest} to {schedule.version}")
        ids = schedule.ids.setdefault(at, set())
        ids.add(delivery.id)
        if len(ids) > 1 or not delivery.id.startswith(f"{schedule.name}:"):
            self.fail(f"{schedule}: the occurrence of {at} is delivered as {sorted(ids)}")

        def take() -> None:
            schedule.accepted[at] += 1

        return PlannedAnswer(take)

    async def verdict(self, instance: Instance) -> None:
        for schedule in self.schedules:
            self._judge(schedule)
        await super().verdict(instance)

    def _judge(self, schedule: Schedule) -> None:
        """Check that each occurrence that had to come was accepted, and exactly once in a history without faults."""
        wanted = wanted_of(schedule, self.slack, exact=self.exact)
        self.counts["occurrences wanted"] += len(wanted)
        self.counts["occurrences accepted"] += len(schedule.accepted)
        if missing := [at for at in wanted if not schedule.accepted[at] and not self.excused(schedule, at)]:
            self.fail(f"{schedule}: {len(missing)} of {len(wanted)} occurrences never came: {missing[:10]}")
        if self.exact and (doubled := [at for at, count in schedule.accepted.items() if count > 1]):
            self.fail(f"{schedule}: without faults, occurrences came twice: {doubled}")


def wanted_of(schedule: Schedule, slack: Millis, *, exact: bool) -> list[Millis]:
    """Return the occurrences that must be delivered.

    `all` means all that lie between the creation or a resume and the next pause, whatever happened, because a resume follows each pause.
    The other policies promise this while nothing goes wrong. A delete drops what has no event yet, so it promises this then, too.
    """
    if schedule.policy != "all" and not exact:
        return []
    if any(each.verb == "delete" for each in schedule.changes) and not exact:
        return []
    found: list[Millis] = []
    since: Millis | None = None
    for change in schedule.changes:
        match change.verb:
            case "create" | "resume":
                since = change.high + slack
            case "pause" | "delete":
                found += [at for at in schedule.occurrences if since is not None and since < at < change.low - slack]
                since = None
    if since is not None:
        found += [at for at in schedule.occurrences if since < at]
    return found


class _Client:
    """The owner of one schedule. It repeats each request until it knows the outcome, so that its requests never overlap."""

    def __init__(self, world: ScheduledWorld, schedule: Schedule) -> None:
        self._world, self._schedule, self._clients = world, schedule, Clients(world)

    async def run(self) -> None:
        """Create the schedule, change it a few times, and leave it running or deleted."""
        fortune, schedule = self._world.fortune, self._schedule
        await asyncio.sleep(fortune.uniform(0.0, self._world.profile.window))
        schedule.asked = self._world.true
        if not await self._done("create"):
            return
        paused = False
        for _ in range(fortune.choice((0, 1, 2, 3, 4))):
            await asyncio.sleep(fortune.choice((0.0, 1.0, fortune.uniform(0.0, 40.0), fortune.uniform(0.0, 150.0))))
            verb: Verb = fortune.choice(("resume",) if paused else ("pause", "pause", "change"))
            if not await self._done(verb):
                return
            paused = verb == "pause" or (paused and verb != "resume")
        if fortune.random() < 0.15:
            await asyncio.sleep(fortune.uniform(0.0, 40.0))
            await self._done("delete")
        elif paused:
            await asyncio.sleep(fortune.uniform(0.0, 40.0))
            await self._done("resume")

    async def _done(self, verb: Verb) -> bool:
        """Repeat the request until its outcome is known. Returns False for a schedule that was refused, or is over."""
        world, schedule = self._world, self._schedule
        began = world.true
        if verb == "change":
            schedule.version += 1
        if verb == "resume":
            schedule.resuming = began
        repeated = False
        while True:
            answer = await self._request(verb)
            if answer.kind == "ok" or (repeated and verb == "delete" and answer.code == "not-found"):
                break
            if answer.kind not in UNKNOWN and answer.code not in ("changed-meanwhile", "too-many-requests", "contended"):
                world.counts[f"schedules: {verb} refused: {answer.code}"] += 1
                return False
            repeated = True
            await asyncio.sleep(world.fortune.choice((0.0, 0.2, 3.0, 15.0)))
        world.counts[f"schedules: {verb}"] += 1
        schedule.changes.append(Change(verb, began, world.true))
        if verb in ("create", "change"):
            schedule.versions[schedule.version] = world.true
        schedule.resuming = None
        return True

    async def _request(self, verb: Verb) -> Answer:
        schedule = self._schedule
        route = {"create": "schedules_put", "change": "schedules_put"}.get(verb, f"schedules_{verb}")
        body = orjson.dumps(self._document()) if route == "schedules_put" else b""

        async def act(instance: Instance) -> Any:
            return await call(instance, route, schedule.tenant, schedule.name, body)

        # Patient: a request that nobody waits for could take effect after the next one.
        return await self._clients.request(f"{verb} {schedule.name}", act, [], patient=True)

    def _document(self) -> dict[str, Any]:
        schedule = self._schedule
        return {
            "every": format_duration(schedule.every),
            "start": to_text(schedule.start),
            "end": to_text(schedule.end),
            "catch_up": {"policy": schedule.policy},
            "payload": {"s": schedule.number, "v": schedule.version},
            **self._world.more_of(schedule),
        }


def simulate_schedules(seed: int, style: str | None = None) -> Report:
    """Play one history with schedules. The same seed gives the same history."""
    world = ScheduledWorld(seed, style)
    with quietly(world.profile.group):
        return world.play()
