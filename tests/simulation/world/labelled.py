"""Histories with searchable labels: clients post, move, fire, cancel and redrive labelled events, and list them by label, while everything
else goes wrong and the tenants declare the label.

A walk through a list is the pages from the first to the last, with time between them. An event that was acknowledged before the walk, and
that no client has changed until its end, is in it. Once the label has all its rows, it is there once. When all is quiet this is so for
every event, and the lists go by label rows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from shared.app.timers import Counts
from shared.core.clock import Millis, to_text
from shared.delivery.channels import Sender
from shared.delivery.channels.ports import OutgoingDelivery, Verdict
from shared.scheduler.queries import label_index
from shared.scheduler.queries.label_index import KNOWN_AFTER, PK_PROGRESS, LabelIndex
from shared.storage.names import PK_TICKS, SWEEPS
from shared.storage.ports import RowQuery
from tests.model.checking.mutants import patched

from ..checks.invariants import only_owners_start
from ..history import Report, World, quietly
from ..workload import UNKNOWN, Answer, Clients
from .api import call
from .instance import CURRENT, Instance
from .marked import ACCEPTED, MarkedSender, PlannedAnswer

LABEL = "batch"
VALUES = "ab"
CALM_AFTER = 700.0
"""Seconds after which faults end although clients still repeat requests."""
REFUSED = Verdict("final", 400, "refused")
UNCHANGEABLE = ("already-firing", "already-final", "not-dead")
"""Codes of changes that come too late."""
_searchable = LabelIndex.searchable


@dataclass(slots=True, eq=False)
class LabelledEvent:
    """One event, as its client knows it."""

    number: int
    tenant: str
    value: str
    due: Millis
    fails: bool
    """Its first attempt is refused for good."""
    acked: Millis | None = None
    changed: bool = False
    """A request to change it was made."""
    tried: int = 0
    accepted: int = 0

    @property
    def id(self) -> str:
        return f"labelled-{self.number:03d}"


class LabelledWorld(World):
    """One history with searchable labels."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        # A random generator of its own, so that the rest of a history is the same as without labels.
        self.fortune = Random(f"{seed}/labels")
        self.labelled: list[LabelledEvent] = []
        super().__init__(seed, style)
        # An event waits for its acknowledgement without end where the tenant may have three open events.
        self.profile.events_per_second = self.profile.open_events = None
        self.clients = Clients(self)
        self._late_until = self.fortune.choice((0.0, 0.0, 0.0, 60.0, 200.0))
        """Seconds until a process that has not heard of the declarations is restarted; 0 without one."""
        self.declared = [False] * self.profile.tenants
        minute = 60.0 * self.fortune.randint(1, 2)
        self._begins = self.fortune.choice((0.0, 0.0, self.fortune.uniform(0.0, 120.0), minute - self.fortune.uniform(0.0, 5.0)))
        """Seconds until the tenants declare the label."""
        self._fresh = self.fortune.random() < 0.3 and not self._late_until
        """The tenants have declared the label before they had any event. Events of a late process have no pass then."""
        self._passes = 0.0 if self._fresh else 60.0 * (1 + (self._begins + KNOWN_AFTER / 1000) // 60)
        """Seconds until the pass over their events, if nothing goes wrong."""

    async def open(self) -> Instance:
        instance = await super().open()
        for tenant in (f"t{number}" for number in range(self.profile.tenants) if self._fresh):
            await declare(instance, tenant)
            await instance.app.scheduler.label_index.begin(tenant, fresh=True)
        return instance

    def senders(self, instance: Instance) -> dict[str, Sender]:
        plain = super().senders(instance)
        return {**plain, "queue": MarkedSender(self, instance, plain["queue"], "b", self.arrived)}

    # -- what happens

    async def lived(self) -> None:
        self.loop.call_later(CALM_AFTER, self._calm)
        if self._late_until:
            self.loop.call_later(self._late_until, self._end_late)
        fortune, tenants = self.fortune, self.profile.tenants
        for number in range(fortune.randint(4, 16)):
            value = fortune.choice(VALUES[: fortune.choice((1, 1, 2))])
            due = self.start + fortune.choice((60_000, fortune.randrange(5_000, 90_000), fortune.randrange(300_000, 900_000), 1_000_000))
            tenant = f"t{fortune.randrange(tenants)}"
            self.labelled.append(LabelledEvent(number, tenant, value, due, fortune.random() < 0.2))
        lives = [self._live(each, self.some_time()) for each in self.labelled]
        declarations = [self._declare(number) for number in range(tenants)]
        await asyncio.gather(super().lived(), *declarations, *lives, *self.more())

    def some_time(self) -> float:
        """Return a time at which something is likely to meet what goes on."""
        fortune = self.fortune
        about = self._begins + fortune.uniform(0.0, 6.0), self._passes + fortune.uniform(0.0, 3.0)
        return fortune.choice((*about, fortune.uniform(0.0, 60.0), fortune.uniform(0.0, 60.0)))

    def more(self) -> list[Any]:
        """Return what else clients do: they walk through lists."""
        fortune = self.fortune
        return [self._walk_at(fortune.choice((self.some_time(), fortune.uniform(0.0, 900.0)))) for _ in range(fortune.randint(2, 8))]

    def _calm(self) -> None:
        self.troubled = False

    @property
    def true(self) -> Millis:
        """The time now."""
        return self.start + int(self.loop.now * 1000 + 1e-6)

    async def ask(self, name: str, act: Callable[[Instance], Any], final: tuple[str, ...] = (), patient: bool = True) -> Answer:
        """Repeat a request until its outcome is known: done, or refused with one of these codes."""
        while True:
            answer = await self.clients.request(name, act, [], patient=patient)
            if answer.kind == "ok" or answer.code in final:
                return answer
            if answer.kind not in UNKNOWN and answer.code not in ("too-many-requests", "contended", "changed-meanwhile"):
                self.fail(f"{name} is refused: {answer.code}")
            await asyncio.sleep(self.fortune.choice((0.0, 0.2, 3.0, 15.0)))

    async def _declare(self, number: int) -> None:
        await asyncio.sleep(self._begins)
        tenant = f"t{number}"
        await self.ask(f"declare a label of {tenant}", lambda instance: declare(instance, tenant))
        # A process that ended before it began the pass leaves that to the first list. Others know of the declaration after 5 s.
        await asyncio.sleep(6.0)
        await self.ask(f"list events of {tenant}", lambda instance: list_page(instance, tenant, "a", 1, None))
        self.declared[number] = True

    async def _live(self, event: LabelledEvent, start: float) -> None:
        fortune = self.fortune
        verbs = ("move", "move", "grow", "fire", "cancel", "redrive")
        changes = [(fortune.choice((self.some_time(), fortune.uniform(0.0, 500.0))), fortune.choice(verbs)) for _ in range(3)]
        await asyncio.sleep(start)
        document = {"id": event.id, "due": to_text(event.due), "payload": {"b": event.number}, "labels": {LABEL: event.value, "x": "y"}}
        body = orjson.dumps(document)
        await self.ask(f"post {event.id}", lambda instance: call(instance, "events_create", event.tenant, body=body))
        event.acked = self.true
        self.counts["labelled events"] += 1
        for when, verb in sorted(changes[: fortune.choice((0, 0, 0, 1, 2, 3))]):
            await asyncio.sleep(max(0.0, when - self.loop.now))
            await self._change(event, verb)

    async def _change(self, event: LabelledEvent, verb: str) -> None:
        route, body = f"events_{verb}", b""
        match verb:
            case "move":
                due = self.true + self.fortune.choice((10_000, 60_000, 400_000))
                route, body = "events_patch", orjson.dumps({"due": to_text(due)})
            case "grow":
                # Most events that become larger move to a shard of their own.
                route, body = "events_patch", orjson.dumps({"payload": {"b": event.number, "pad": "." * 200}})
            case "cancel":
                route = "events_delete"
        event.changed = True
        answer = await self.ask(f"{verb} {event.id}", lambda instance: call(instance, route, event.tenant, event.id, body), UNCHANGEABLE)
        self.counts[f"labelled: {verb}" if answer.kind == "ok" else f"refused: {answer.code}"] += 1

    # -- lists

    def complete(self, tenant: str) -> bool:
        """Return True if the pass over a tenant's events is stored as complete."""
        found = [row for row in self.rows(SWEEPS) if (row.pk, row.rk) == (PK_PROGRESS, tenant)]
        return bool(found) and bool(found[0].props["done"])

    async def _walk_at(self, when: float) -> None:
        await asyncio.sleep(when)
        fortune = self.fortune
        tenant, value = f"t{fortune.randrange(self.profile.tenants)}", fortune.choice(VALUES)
        asked = self.true
        by_rows = self.complete(tenant)
        pages = fortune.choice((1, 3, 100))

        def get_page(cursor: str | None) -> Any:
            return self.ask(f"list {value} of {tenant}", lambda instance: list_page(instance, tenant, value, pages, cursor))

        found = await self.walked(get_page, lambda: fortune.choice((0.0, 0.0, 0.5, 20.0)))
        self.counts["walks by label rows" if by_rows else "walks through all events"] += 1
        for event in self.labelled:
            # Clients of the plan redrive whatever is dead.
            if event.changed or event.fails or event.acked is None or event.acked >= asked:
                continue
            wanted = (event.tenant, event.value) == (tenant, value)
            if wanted and not found[event.id]:
                self.fail(f"{event.id} was acknowledged at {event.acked}, and is not in a list that began at {asked}: {dict(found)}")
            if found[event.id] > wanted and (by_rows or not wanted):
                self.fail(f"{event.id} ({event.value}) is {found[event.id]} times in a list by {value}")

    @staticmethod
    async def walked(get_page: Callable[[str | None], Any], pause: Callable[[], float]) -> Counter[str]:
        """Return how often each event is listed."""
        found, cursor = Counter[str](), None
        while True:
            answer: Answer = await get_page(cursor)
            found.update(item["id"] for item in answer.reply.body["items"])
            cursor = answer.reply.body["next"]
            if cursor is None:
                return found
            await asyncio.sleep(pause())

    # -- the app

    async def sweep(self, instance: Instance) -> Counts:
        app = await instance.app.serving()
        scheduler, now = app.scheduler, instance.clock.now()
        late = self.is_late(instance)
        if not late:
            scheduler.watch_ticks((await app.storage.tables.query(RowQuery(SWEEPS, PK_TICKS))).rows)
        counts, *_ = await asyncio.gather(super().sweep(instance), *(() if late else self.jobs(scheduler, now)))
        return counts

    def jobs(self, scheduler: Any, now: Millis) -> list[Any]:
        """Return the parts of the sweep besides the scheduler's own."""
        return [scheduler.label_index.run_once(now)]

    def is_late(self, instance: Instance) -> bool:
        """Return True for a process that has not heard of the declarations: it marks no events, and makes no pass."""
        return instance.name == "i1" and self.loop.now < self._late_until

    def _end_late(self) -> None:
        for instance in list(self.host.instances):
            if instance.name == "i1":
                instance.crash()

    async def searchable(self, index: LabelIndex, tenant: str) -> Collection[str]:
        """Return the labels with which the process at work marks events."""
        instance = CURRENT.get()
        return () if instance is not None and self.is_late(instance) else await _searchable(index, tenant)

    def arrived(self, instance: Instance, delivery: OutgoingDelivery) -> PlannedAnswer:
        """Answer a delivery."""
        event = self.labelled[int(orjson.loads(delivery.body)["b"])]
        self.note(instance, "delivers", (event.id, f"attempt {delivery.attempt}"), None)
        only_owners_start(self, instance, delivery.id, event.tenant)
        event.tried += 1
        fails = event.fails and event.tried == 1

        def take() -> None:
            event.accepted += not fails

        return PlannedAnswer(take, verdict=REFUSED if fails else ACCEPTED)

    # -- the end

    def last_due(self) -> Millis:
        return max(super().last_due(), *(each.due for each in self.labelled))

    def unfinished(self) -> bool:
        return super().unfinished() or any(not self.complete(f"t{number}") for number, known in enumerate(self.declared) if known)

    async def verdict(self, instance: Instance) -> None:
        for tenant in (f"t{number}" for number in range(self.profile.tenants)):
            index = (await instance.app.serving()).scheduler.label_index
            if LABEL not in await index.complete(tenant, [LABEL]):
                self.fail(f"lists of {tenant} do not go by label rows")
            for value in VALUES:
                await self._listed(instance, tenant, value)
        await super().verdict(instance)

    async def _listed(self, instance: Instance, tenant: str, value: str) -> None:
        async def get_page(cursor: str | None) -> Answer:
            return Answer("ok", await list_page(instance, tenant, value, 3, cursor))

        found = await self.walked(get_page, lambda: 0.0)
        wanted = Counter(each.id for each in self.labelled if (each.tenant, each.value) == (tenant, value))
        if found != wanted:
            self.fail(f"at the end a list by {value} of {tenant} lacks {dict(wanted - found)}, and has too many: {dict(found - wanted)}")


async def declare(instance: Instance, tenant: str) -> Any:
    """Declare the label of a tenant searchable."""
    directory = instance.app.directory
    spec = await directory.tenant(tenant)
    assert spec is not None
    return await directory.put(tenant, spec.model_copy(update={"searchable": [LABEL]}))


async def list_page(instance: Instance, tenant: str, value: str, limit: int, cursor: str | None) -> Any:
    """Ask for a page of the events with a label."""
    query = {"label": f"{LABEL}={value}", "limit": str(limit)} | ({"cursor": cursor} if cursor is not None else {})
    return await call(instance, "events_list", tenant, query=query)


def simulate_labels(seed: int, style: str | None = None) -> Report:
    """Play one history with searchable labels. The same seed gives the same history."""
    return play(LabelledWorld(seed, style))


def play(world: LabelledWorld) -> Report:
    """Play a history, in which some processes may know nothing of label rows."""

    async def searchable(index: LabelIndex, tenant: str) -> Collection[str]:
        return await world.searchable(index, tenant)

    # Small pages, so that a pass takes a while.
    with quietly(world.profile.group), patched([(LabelIndex, "searchable", searchable), (label_index, "PAGE", 2)]):
        return world.play()
