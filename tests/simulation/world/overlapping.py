"""Histories with schedules whose occurrences do not overlap: receivers take their time and fail, while everything else goes wrong.

The schedules, their clients and promises are those of `schedules`. Further promises, of occurrences that were stored `STORED_BEFORE`
ahead: no delivery begins while an earlier occurrence has not ended. With `skip`, no occurrence is delivered that became due while an
earlier one had not ended, and none is skipped without such a one, or a later one that is under way because its own owner was held up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import orjson

from shared.core.clock import Millis
from shared.delivery.channels.ports import OutgoingDelivery, Verdict
from shared.scheduler.properties.overlap import SKIPPED
from shared.scheduler.rules import FINAL
from shared.storage.names import EVENTS
from shared.storage.ports import Props

from ..history import Report, quietly
from .instance import Instance
from .keyed_histories import STORED_BEFORE
from .marked import PlannedAnswer
from .schedules import CLAIMED, Schedule, ScheduledWorld

BUSY = Verdict("retry", 503, "busy")
LONGEST = 9.0
"""Most seconds that the receiver takes."""


class OverlapWorld(ScheduledWorld):
    """One history with schedules of overlap `queue` or `skip`."""

    def __init__(self, seed: int, style: str | None = None) -> None:
        # A random generator of its own, so that the schedules and the rest of a history are the same as without a policy.
        self.chance = Random(f"{seed}/overlap")
        self.overlaps: dict[int, str] = {}
        super().__init__(seed, style)

    def more_of(self, schedule: Schedule) -> dict[str, Any]:
        return {"overlap": self.overlap_of(schedule)}

    def overlap_of(self, schedule: Schedule) -> str:
        """Return the policy of a schedule, which never changes."""
        return self.overlaps.setdefault(schedule.number, "skip" if (schedule.number + self.seed) % 2 else "queue")

    def events_of(self, schedule: Schedule) -> Iterator[Props]:
        """Yield the events of a schedule as stored."""
        for row in self.rows(EVENTS):
            if str(row.props.get("id", "")).startswith(f"{schedule.name}:") and row.props["state"] != "moved":
                yield row.props

    def _ahead(self, schedule: Schedule, at: Millis) -> Iterator[Props]:
        """Yield the events of earlier occurrences that were stored in time to be ahead of that of `at`."""
        for props in self.events_of(schedule):
            due, stored = int(props["due"]), int(props["created"])
            if props["state"] == "scheduled":
                # It has not changed since it was stored, which may be long after it was made.
                stored = max(stored, *(row.timestamp for row in self.rows(EVENTS) if row.props.get("id") == props["id"]))
            if due < at and stored <= due - STORED_BEFORE - self.slack:
                yield props

    def arrived(self, instance: Instance, delivery: OutgoingDelivery) -> PlannedAnswer:
        """Check a delivery: no earlier occurrence is left, and it should not have been skipped."""
        schedule = self.schedules[int(orjson.loads(delivery.body)["s"])]
        at, first = delivery.due, delivery.id not in schedule.ids.get(delivery.due, ())
        answer = super().arrived(instance, delivery)
        own = next((props for props in self.events_of(schedule) if props["id"] == delivery.id), None)
        # An occurrence that was stored late has no place among those that were stored before.
        if first and own is not None and int(own["created"]) <= at - STORED_BEFORE - self.slack:
            for props in self._ahead(schedule, at):
                if props["state"] not in FINAL and not schedule.accepted[int(props["due"])]:
                    self.fail(f"{schedule}: {delivery.id} begins, but {props['id']} is ahead, and is {props['state']}")
                ended = 0 if props.get(SKIPPED) or props["state"] == "cancelled" else int(props.get("ended", 0))
                if self.overlap_of(schedule) == "skip" and ended > at + self.slack:
                    self.fail(f"{schedule}: {delivery.id} is not skipped, but {props['id']} ended at {props['ended']}, after {at}")
        takes = self.chance.choice((0.0, 0.0, 1.0, 0.7, 1.4)) * min(LONGEST / 1.4, schedule.every / 1000)
        if first and self.chance.random() < 0.15 and not self.exact:
            # Without faults no breaker opens, for which the other events would be late.
            return PlannedAnswer(lambda: None, takes, BUSY)
        return PlannedAnswer(answer.take, takes)

    def _reasons(self, skipped: Props, events: Iterable[Props]) -> list[Props]:
        """Return the events for which an occurrence may have been skipped."""
        at, until, created = int(skipped["due"]), int(skipped["ended"]), int(skipped["created"])
        late = created > at - STORED_BEFORE - self.slack
        if late:
            # A change of the schedule cancels what waits, and stores it again.
            events = [each for each in events if int(each.get("ended", until)) >= until or ("epoch" in each and not each.get(SKIPPED))]

        def is_reason(each: Props) -> bool:
            due, ended = int(each["due"]), int(each.get("ended", until))
            # One whose owner was held up finds a later one under way: its turn has come meanwhile.
            overtaken = at < due <= until and ended >= until - self.slack and not each.get(SKIPPED)
            # One that was stored late also finds others under way, and later ones whose turn has come.
            found_late = late and due <= until + CLAIMED and ended >= created - self.slack
            return (due < at and ended >= at - self.slack) or overtaken or found_late

        return [each for each in events if is_reason(each)]

    def excused(self, schedule: Schedule, at: Millis) -> bool:
        """Return True for an occurrence that was skipped, or used up its attempts."""
        return any(int(props["due"]) == at and (props.get(SKIPPED) or props["state"] == "dead") for props in self.events_of(schedule))

    async def verdict(self, instance: Instance) -> None:
        for schedule in self.schedules:
            events = list(self.events_of(schedule))
            for props in events:
                if not props.get(SKIPPED):
                    self.counts["occurrences not skipped"] += 1
                    continue
                self.counts["occurrences skipped"] += 1
                at = int(props["due"])
                if self.overlap_of(schedule) != "skip" or schedule.accepted[at] or not self._reasons(props, events):
                    self.fail(f"{schedule}: {props['id']} was skipped without a reason: {props.get('error')}")
        await super().verdict(instance)


def simulate_overlap(seed: int, style: str | None = None) -> Report:
    """Play one history with schedules that do not overlap. The same seed gives the same history."""
    world = OverlapWorld(seed, style)
    with quietly(world.profile.group):
        return world.play()
