"""Histories with bulk jobs: clients prepare, confirm and cancel jobs by label, while others change the same events and everything else goes
wrong.

The jobs of a history move by `BY`, twice `BY` and so on: the due time of an event that no client has moved says which jobs have moved it.
Each has at most once, and only jobs that chose its label. A job that ends without a cancel has changed every event that it could, and its
report counts them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from shared.core.clock import Millis, to_text
from shared.core.durations import format_duration
from shared.scheduler.bulk import service
from shared.scheduler.bulk.rows import CODEC, BulkJob, jobs_partition
from shared.scheduler.changes.table import FIRE_IN
from shared.scheduler.protocol.moving import SOURCE
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Row
from tests.model.checking.mutants import patched

from ..history import Report
from ..workload import Answer
from .api import call
from .instance import Instance
from .labelled import LABEL, UNCHANGEABLE, VALUES, LabelledEvent, LabelledWorld, play

BY: Millis = 7_000
"""Milliseconds by which the first job moves events; each further one moves them twice as far."""
CHUNK, COUNT_PAGE = 3, 4
"""Events of a step, and of a page that is counted: few, so that a job takes many steps."""
WORKERS = 12
"""Most processes that a job meets, with a step under way each."""
ACTIONS = ("move", "move", "move", "cancel", "fire", "redrive")


@dataclass(slots=True, eq=False)
class SimJob:
    """One job, as its client knows it."""

    number: int
    tenant: str
    value: str
    action: str
    id: str = ""
    asked: Millis = 0
    counted: Millis = 0
    confirmed: Millis = 0
    to: Millis | None = None
    """Only events due before this time, if given."""
    stopped: dict[str, Any] | None = None
    """The answer to a cancel."""
    dead: frozenset[str] = frozenset()
    """Events that were dead before the job was prepared."""

    @property
    def by(self) -> Millis:
        return BY << self.number

    def chooses(self, event: LabelledEvent) -> bool:
        return (event.tenant, event.value) == (self.tenant, self.value)


class BulkWorld(LabelledWorld):
    """One history with bulk jobs."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        self.bulk: list[SimJob] = []
        super().__init__(seed, style)
        self._about = self.fortune.uniform(20.0, 300.0)
        """Seconds until most of the jobs are prepared."""

    def some_time(self) -> float:
        return self.fortune.choice((super().some_time(), self._about + self.fortune.uniform(-20.0, 100.0)))

    def more(self) -> list[Any]:
        # A list need not show what a job moves meanwhile, so nobody walks through lists.
        fortune = self.fortune
        for number in range(fortune.randint(1, 3)):
            tenant, value = f"t{fortune.randrange(self.profile.tenants)}", fortune.choice(VALUES[:1] * 3 + VALUES[1:])
            job = SimJob(number, tenant, value, fortune.choice(ACTIONS))
            if job.action == "cancel":
                # Most moves lead beyond it.
                job.to = self.start + fortune.choice((100_000, 400_000, 1_000_000))
            self.bulk.append(job)
        # Most of them at about the same time, so that they change the same events.
        return [self._job(job, self._about + fortune.choice((fortune.uniform(0.0, 5.0), fortune.uniform(0.0, 200.0)))) for job in self.bulk]

    def jobs(self, scheduler: Any, now: Millis) -> list[Any]:
        return [*super().jobs(scheduler, now), scheduler.bulk.run_once(now)]

    async def _job(self, job: SimJob, start: float) -> None:
        fortune = self.fortune
        await asyncio.sleep(start)
        job.asked = self.true
        job.dead = frozenset(str(row.props["id"]) for row in self._events(job) if row.props["state"] == "dead")
        document: dict[str, Any] = {"action": job.action, "filter": {"labels": {LABEL: job.value}}}
        if job.to is not None:
            document["filter"]["to"] = to_text(job.to)
        if job.action == "move":
            document["later"] = format_duration(job.by)
        body = orjson.dumps(document)
        # Each repetition makes a job of its own. One that nobody confirms changes nothing.
        prepared = await self.ask(f"prepare job {job.number}", lambda instance: call(instance, "jobs_create", job.tenant, body=body))
        job.id = str(prepared.reply.body["id"])
        counted = await self._until(job, lambda state: state != "counting")
        job.counted = self.true
        if job.to is not None:
            for event in [each for each in self.labelled if job.chooses(each) and each.acked is not None][:2]:
                # It was counted, and matches no longer.
                event.changed = True
                later = orjson.dumps({"due": to_text(job.to + 100_000)})
                act = partial(call, name="events_patch", tenant=job.tenant, event_id=event.id, body=later)
                await self.ask(f"move {event.id}", act, UNCHANGEABLE)
        await asyncio.sleep(fortune.choice((0.0, 0.0, 30.0, 100.0)))
        confirmation = orjson.dumps({"confirmation": counted["confirmation"]})
        job.confirmed = self.true
        await self._ask_about(job, "confirm", confirmation)
        for event in self.labelled:
            # Its due time is what the job's clock shows; a dead event gets a new one.
            event.changed = event.changed or (job.action in ("fire", "redrive") and job.chooses(event))
        if fortune.random() < 0.25:
            await asyncio.sleep(fortune.choice((0.0, 0.05, 1.0, 20.0)))
            job.stopped = (await self._ask_about(job, "cancel")).reply.body
        await self._until(job, lambda state: state not in ("counted", "running"))

    async def _ask_about(self, job: SimJob, verb: str, body: bytes = b"") -> Answer:
        return await self.ask(f"{verb} job {job.number}", lambda instance: call(instance, f"jobs_{verb}", job.tenant, job.id, body))

    async def _until(self, job: SimJob, reached: Any) -> dict[str, Any]:
        while True:
            found: dict[str, Any] = (await self._ask_about(job, "get")).reply.body
            if reached(found["state"]):
                return found
            await asyncio.sleep(self.fortune.choice((1.0, 10.0)))

    def _events(self, job: SimJob) -> list[Row]:
        """The rows of the job's events, each at its place."""
        ids = {each.id for each in self.labelled if job.chooses(each)}
        rows = [row for row in self.rows(EVENTS) if row.props.get("id") in ids and row.pk.endswith(f"-{job.tenant}")]
        return [row for row in rows if row.props["state"] != "moved" and not row.props.get("target")]

    def unfinished(self) -> bool:
        rows = [row for job in self.bulk for row in self._rows(job)]
        return super().unfinished() or any(row.props.get("state") in ("counting", "running") for row in rows)

    def _rows(self, job: SimJob) -> list[Row]:
        return [row for row in self.rows(SWEEPS) if row.pk == jobs_partition(job.tenant) and row.rk.startswith("j:")]

    # -- the end

    def last_due(self) -> Millis:
        return super().last_due() + sum(job.by for job in self.bulk)

    async def verdict(self, instance: Instance) -> None:
        stored = {row.rk[2:]: CODEC.decode(row.props) for job in self.bulk for row in self._rows(job)}
        places = {str(row.props["id"]): row for job in self.bulk for row in self._events(job)}
        for event in self.labelled:
            # A redriven event is due when it was redriven, so its due time says nothing about jobs.
            event.changed |= event.id in places and SOURCE in places[event.id].props
            if not event.changed and event.id in places:
                self._judge_moves(event, places[event.id], stored)
        for job in self.bulk:
            self._judge(job, stored[job.id], places)
        await super().verdict(instance)

    def _judge_moves(self, event: LabelledEvent, row: Row, stored: dict[str, BulkJob]) -> None:
        """An event that no client has moved: its due time shows which jobs did."""
        whole, rest = divmod(int(row.props["due"]) - event.due, BY)
        moved = [job for job in self.bulk if job.action == "move" and job.chooses(event)]
        if rest or whole < 0 or whole & ~sum(1 << job.number for job in moved):
            self.fail(f"{event.id} is moved by {whole} x {BY} and {rest} ms; it may be moved by {[1 << job.number for job in moved]}")
        for job in moved:
            found = stored[job.id]
            # A count need not meet an event that another job moves meanwhile.
            others = [each for each in moved if each is not job and each.confirmed < job.counted and stored[each.id].ended > job.asked]
            in_time = event.acked is not None and event.acked < job.asked and not others
            reached = event.due > found.ended + CLAIMED + 2 * self.slack_of_clocks and row.props["state"] != "cancelled"
            if in_time and reached and found.state == "done" and not whole & 1 << job.number:
                self.fail(f"job {job.number} is done, and has not moved {event.id}: {row.props}, {found}")

    def _judge(self, job: SimJob, found: BulkJob, places: dict[str, Row]) -> None:
        """The report of a job says what it has done."""
        self.counts[f"jobs: {job.action} {found.state}"] += 1
        told = found.done + found.skipped + found.failed
        if found.state not in ("done", "cancelled") or (found.state == "done" and told != found.count) or told > found.count:
            self.fail(f"job {job.number} ends so: {found}")
        stopped = job.stopped
        if stopped and stopped["state"] == "cancelled" and (stopped["done"], stopped["skipped"]) != (found.done, found.skipped):
            self.fail(f"job {job.number} went on after its cancel: {stopped}, {found}")
        mine = [event for event in self.labelled if job.chooses(event)]
        match job.action:
            case "cancel":
                changed = [row for event in mine if (row := places.get(event.id)) and row.props.get("by") == f"job:{job.id}"]
                unsure = 0
                if job.to is not None and (far := [row for row in changed if int(row.props["due"]) >= job.to]):
                    self.fail(f"job {job.number} has cancelled events that are due too late: {far}")
            case "move":
                still = [event for event in mine if not event.changed]
                changed = [event for event in still if (int(places[event.id].props["due"]) - event.due) // BY & 1 << job.number]
                unsure = len(mine) - len(still)
            case _:
                changed, unsure = [], len(mine)
        most = len(changed) + unsure
        least = len(changed) - (CHUNK * WORKERS if found.state == "cancelled" else 0)
        if not least <= found.done <= most:
            self.fail(f"job {job.number} ({job.action}, {found.state}) reports {found.done}; it has changed {len(changed)}, perhaps {most}")
        if job.action == "redrive" and found.state == "done":
            for event in mine:
                if event.id in job.dead and not event.accepted:
                    self.fail(f"job {job.number} has not redriven {event.id}: {places.get(event.id)}")
            self.counts["redriven by jobs"] += found.done

    @property
    def slack_of_clocks(self) -> Millis:
        """Most milliseconds between true time and the time by which a process decides."""
        return 2 * self.profile.skew + 2_000


CLAIMED: Millis = FIRE_IN
"""An event that is due within this time may be claimed: no job changes it any more."""


def simulate_bulk(seed: int, style: str | None = None) -> Report:
    """Play one history with bulk jobs. The same seed gives the same history."""
    with patched([(service, "CHUNK", CHUNK), (service, "COUNT_PAGE", COUNT_PAGE)]):
        return play(BulkWorld(seed, style))
