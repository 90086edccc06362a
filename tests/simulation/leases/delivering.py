"""Histories in which a fleet channel delivers events to the owners of partitions while everything else goes wrong, resizes included.

The lookup, its memory, the decision, the request, the receiver's guard and what becomes of an attempt are the production code; only the
network between is this module's. At each acceptance the store must show that very lease: owner, incarnation, generation and epoch. At the
end every event has been accepted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from shared.core.errors import StorageError, Unavailable
from shared.core.partition_hash import partition_of_key
from shared.delivery.channels import rules as verdicts
from shared.delivery.channels.fleet import http_target
from shared.delivery.channels.http import Post, post_of
from shared.delivery.channels.model import FleetChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.delivery.egress_guard import Egress
from shared.delivery.fleet_owners import OwnerRouting, PartitionOwner
from shared.engine.async_runner import AsyncRunner
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.receiving import OwnedDelivery, OwnerGuard
from shared.leases.rows import FLEET, Intent, parse_fleet, parse_partition, partition_key
from shared.leases.service.owner_lookup import OwnerLookup
from shared.scheduler.failures import counting, failed_attempt, stale_answer, unreached_owner
from shared.scheduler.rules import punctual_at
from shared.scheduler.shard.retries import RetryPolicy
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.names import FLEETS
from tests.simulation.checks.truth import Violation

from .history import KEY, Report, listening
from .node import Node
from .resizing import Resizes

SECRETS = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",)
SPEC = FleetChannel.model_validate({"type": "fleet", "fleet": "f", "path": "/events", "timeout": "PT2S"})
TARGET = Target("t", "c", SPEC, SECRETS)
POLICY = RetryPolicy(200, 500, 4_000, 86_400_000)
EGRESS = Egress([f"{name}.test" for name in "abcdz"])
DELIVERED_WITHIN = 90.0
"""Seconds after the end of all trouble in which every event must be accepted: more than a wait for an owner and a retry."""


class _Instant:
    """Runs reads at one instant; sometimes storage does not answer."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._runner = ThreadRunner(MemoryBlockingTables(deliveries.world.store), deliveries.world.time.monotonic, 1.0)

    async def run(self, steps: Any) -> Any:
        """See `AsyncRunner.run`."""
        if not self._deliveries.healed and self._deliveries.dice.random() < 0.03:
            raise Unavailable("no answer")
        return self._runner.run(steps)


class _Keeper:
    """The parts of `LeaseKeeper` that the guard asks, of one simulated process."""

    fleet = "f"

    def __init__(self, node: Node) -> None:
        self._node = node

    def holds(self, generation: int, partition: int, epoch: int) -> bool:
        """See `LeaseKeeper.holds`."""
        return self._node.notifier.holds(generation, partition, epoch, self._node.host.steady)


@dataclass(slots=True, eq=False)
class Event:
    """One event. props: as in its row. accepted: how often a server has accepted it."""

    props: dict[str, Any]
    accepted: int = 0
    ended: bool = False

    @property
    def id(self) -> str:
        return str(self.props["id"])

    @property
    def key(self) -> str:
        return str(self.props["key"])


class Deliveries(Resizes):
    """A history with events for the owners of their keys' partitions."""

    def __init__(self, seed: object, style: str, dice: random.Random) -> None:
        super().__init__(seed, style, dice)
        self._loop = asyncio.new_event_loop()
        self._routing = self._process()
        self._counts = {1: self.partitions}
        self._guards: dict[Node, OwnerGuard] = {}
        self.events: list[Event] = []
        self.share_slow = dice.choice((0.0, 0.1, 0.3))

    def endpoint(self, name: str) -> str:
        """See `History.endpoint`. Processes of one name have one address."""
        return f"http://{name}.test:8080"

    def _process(self) -> OwnerRouting:
        """Return the memory of a new process of the service."""
        clock = self.world.time
        return OwnerRouting(OwnerLookup(cast(AsyncRunner, _Instant(self)), clock), clock)

    def plan(self, length: float) -> None:
        """See `History.plan`."""
        super().plan(length)
        for _ in range(self.dice.randint(0, 2)):
            self.world.at(length * self.dice.random(), self.maintain)
        for _ in range(self.dice.randint(0, 2)):
            self.world.at(length * self.dice.random(), self.restart_service)
        for number in range(self.dice.randint(6, 16)):
            due = length * 1.2 * self.dice.random()
            now = self.world.time.now() + int(due * 1000)
            key = f"customer-{self.dice.randrange(8)}"
            event = Event({"id": f"e{number}", "key": key, "due": now, "created": now, "tries": 0, "channel": "c", "state": "scheduled"})
            self.events.append(event)
            self.world.at(due, self.attempt, event)

    def maintain(self) -> None:
        """A server's machine has maintenance ahead, for a while."""
        intent = Intent("maintain", server=self.dice.choice(self.names))
        self._say(intent)
        self._later(self._span(1.5), self._allow, intent)

    def restart_service(self) -> None:
        """Another process of the service goes on with the events."""
        self._routing = self._process()

    def resize(self) -> None:
        """See `Resizes.resize`."""
        super().resize()
        row = run_through(self.world.store.get(FLEETS, KEY, FLEET))
        assert row is not None
        fleet = parse_fleet(row.props)
        self._counts[fleet.generation] = fleet.partitions

    # -- the service

    def attempt(self, event: Event) -> None:
        """Attempt a delivery, as `DeliveryAttempts` does."""
        if event.ended:
            return
        now, props = self.world.time.now(), event.props
        try:
            route = self._routing.route("t", "f", event.key, punctual_at(props), starts=True)
            owner, decision = self._loop.run_until_complete(route)
        except StorageError:
            self._later(0.5, self.attempt, event)
            return
        if decision.action == "wait":
            self.world.counts["waits"] += 1
            self._later(max(1, decision.look - now) / 1000, self.attempt, event)
            return
        props["tries"] += 1
        if decision.action == "fail":
            self._settle(event, owner, Verdict("retry", error=decision.why), now)
            return
        tries = int(props["tries"])
        delivery = OutgoingDelivery(event.id, int(props["due"]), now, tries, b'{"add": 1}', ordering_key=event.key, owner=owner)
        post = post_of(http_target(TARGET, delivery), delivery, EGRESS)
        self.world.note("app", f"sends {event.id} to {owner.server}", f"partition {owner.partition} epoch {owner.epoch}")
        self._send(event, owner, delivery, post)

    def _send(self, event: Event, owner: PartitionOwner, delivery: OutgoingDelivery, post: Post) -> None:
        dice, world = self.dice, self.world
        there, back = 0.03 * dice.random(), 0.03 * dice.random()
        if not self.healed and dice.random() < self.share_slow:
            # A request can be on its way for longer than a failover takes, and arrive long after nobody waits for it.
            there = self.profile.takeover * 2 * dice.random()
        lost = "" if self.healed else dice.choices(("", "request", "answer"), (20, 1, 1))[0]
        open_exchange: list[bool] = [True]

        def answered(status: int | None, *, refused: bool = False) -> None:
            if not open_exchange:
                return
            open_exchange.clear()
            verdict = Verdict("retry", error="no answer", unreached=refused)
            if status is not None:
                verdict = verdicts.judge(status, None, world.time.now(), owner)
            self._routing.ended("t", owner, answered=status is not None)
            if verdict.outcome == "stale":
                self._routing.stale("t", owner)
            self._settle(event, owner, verdict, delivery.fired)

        def arrive() -> None:
            nodes = [node for node in self.nodes if node.server == owner.server and node.running]
            if not nodes:
                self._later(back, partial(answered, None, refused=True))
                return
            node = nodes[-1]
            if node.host.frozen(arrive):
                return
            status = self._receive(node, event, post)
            if lost != "answer":
                self._later(back, answered, status)

        if lost != "request":
            self._later(there, arrive)
        self._later(post.timeout, answered, None)

    def _settle(self, event: Event, owner: PartitionOwner, verdict: Verdict, fired: int) -> None:
        now, props = self.world.time.now(), event.props
        self.world.counts[f"attempts: {verdict.outcome}"] += 1
        if verdict.outcome == "delivered":
            event.ended = True
            return
        outcome = None
        if verdict.outcome == "stale":
            outcome = stale_answer(props, verdict, fired, now)
        elif verdict.unreached:
            outcome = unreached_owner(props, owner.failover, verdict, fired, now)
            self.world.counts["unreached at no cost"] += outcome is not None
        if outcome is None:
            props.update(counting(props))
            error = verdict.error or ""
            outcome = failed_attempt(
                props, POLICY, now=now, chance=self.dice.random(), waited=0, history="[]", error=error, final=verdict.outcome == "final"
            )
        if outcome.state != "retrying":
            raise Violation(f"{event.id} is {outcome.state}: {verdict.error}")
        props.update(outcome.props, history="[]")
        self._later((int(props["next"]) - now) / 1000, self.attempt, event)

    # -- the servers

    def _receive(self, node: Node, event: Event, post: Post) -> int:
        """Take a request, as a server does that follows the helper. Raises `Violation` if it accepts what it must not."""
        guard = self._guards.get(node)
        if guard is None:
            guard = self._guards[node] = OwnerGuard(_Keeper(node), SECRETS, wall=self.world.time.now)
        found = guard.check(cast(Mapping[str, str], post.headers), post.body)
        self.world.note(node.host.name, f"gets {event.id}", found)
        if not isinstance(found, OwnedDelivery):
            return found.status
        self._is_current(node, event, found)
        event.accepted += 1
        return 200

    def _is_current(self, node: Node, event: Event, found: OwnedDelivery) -> None:
        row = run_through(self.world.store.get(FLEETS, KEY, partition_key(found.partition)))
        stored = parse_partition(row) if row is not None else None
        session = node.keeper_state.session
        lease = (node.server, session.incarnation if session is not None else "", found.epoch, found.generation)
        held = (stored.owner, stored.incarnation, stored.epoch, stored.generation) if stored is not None else None
        if held != lease:
            raise Violation(f"{node.host.name} accepted {event.id} under {lease}, and the store shows {held}")
        if found.id != event.id or partition_of_key(event.key, self._counts[found.generation]) != found.partition:
            raise Violation(f"{event.id} with key {event.key} was delivered to partition {found.partition}")

    def play(self, report: Report) -> None:
        """See `History.play`."""
        try:
            super().play(report)
            self._loop.run_until_complete(asyncio.sleep(0))
            began = self.world.time.seconds
            if not self.world.run(began + DELIVERED_WITHIN, lambda: all(event.ended for event in self.events)):
                left = [event.id for event in self.events if not event.ended]
                raise Violation(f"not delivered {DELIVERED_WITHIN:.0f} s after all trouble ended: {', '.join(left)}")
            if lost := [event.id for event in self.events if not event.accepted]:
                raise Violation(f"counted as delivered, and no server has accepted them: {', '.join(lost)}")
        finally:
            self._loop.close()
            self.world.counts["events"] += len(self.events)
            self.world.counts["accepted again"] += sum(max(0, event.accepted - 1) for event in self.events)


def simulate_deliveries(seed: object) -> Report:
    """Play one history. The same seed gives the same history."""
    dice = random.Random(f"deliveries {seed}")
    style = dice.choice(("calm", "stormy", "stormy"))
    history = Deliveries(seed, style, dice)
    report = Report(seed, style, history.world)
    with listening():
        try:
            history.play(report)
        except Violation as violation:
            report.violation = str(violation)
    return report
