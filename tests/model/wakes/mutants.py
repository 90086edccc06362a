"""Broken wakes: each mutant leaves out one sentence of `shared/scheduler/wakes/`, or of those that call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from shared.engine.effects import Steps, get, write
from shared.scheduler.timings import DISPATCH_AHEAD
from shared.scheduler.wakes import protocol, rules
from shared.scheduler.wakes.protocol import PK_PLAN, PLAN_ROW, LookTimes, plan_of, send_wakes
from shared.scheduler.wakes.rules import COMES_AFTER, PLAN, Plan, is_covered, planned_wakes, wakes_for
from shared.scheduler.wakes.service import Horizons
from shared.storage.names import SWEEPS
from shared.storage.ports import Insert, Replace, Upsert
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch
from tests.model.wakes import world

from .plays import PLAYS
from .world import WakeWorld


def due_wake_trusted() -> list[Patch]:
    def trusting(plan: Plan, message: int, now: int, gap: int, **given: Any) -> bool:
        return is_covered(plan, message, now - COMES_AFTER - 1, gap, **given)

    return [(protocol, "is_covered", trusting), (rules, "is_covered", trusting)]


def clocks_trusted() -> list[Patch]:
    return [(rules, "COMES_AFTER", 0)]


def one_wake() -> list[Patch]:
    def one(message: int, now: int, gap: int, **given: Any) -> tuple[int, ...]:
        return wakes_for(message, now, gap, **given)[:1]

    def planned(plan: Plan, messages: Sequence[int], unsent: Iterable[int], now: int, gap: int, **given: Any) -> list[int]:
        new = planned_wakes(plan, messages, unsent, now, gap, **given)
        return new[:1] if not any(now + COMES_AFTER < each <= min(new, default=0) for each in plan.wakes) else []

    return [(protocol, "wakes_for", one), (protocol, "planned_wakes", planned)]


def second_wake_at_any_time() -> list[Patch]:
    """Two wakes are always queued, but the second one may come long after the first."""

    def planned(plan: Plan, messages: Sequence[int], unsent: Iterable[int], now: int, gap: int, **given: Any) -> list[int]:
        new = planned_wakes(plan, messages, unsent, now, gap, **given)
        known = [each for each in plan.wakes if each > now + COMES_AFTER]
        return new[:1] if known and len(new) == 2 else new

    return [(protocol, "planned_wakes", planned)]


def plan_before_wakes() -> list[Patch]:
    """The plan names wakes before they are sent."""

    def ask_wake(message: int, now: int, gap: int | None, *, sent: bool, warm: bool = False) -> Steps[Plan]:
        row = yield from get(SWEEPS, PK_PLAN, PLAN_ROW)
        plan = plan_of(row)
        pause = gap or plan.gap(now)
        if is_covered(plan, message, now, pause, sent=sent, warm=warm):
            return plan
        new = wakes_for(message, now, pause, sent=sent, warm=warm)
        plan = plan.with_wakes(new, now)
        op = Insert(PLAN_ROW, PLAN.encode(plan)) if row is None else Replace(PLAN_ROW, PLAN.encode(plan), row.etag)
        yield from write(SWEEPS, PK_PLAN, op)
        yield from send_wakes(new)
        return plan

    def end_look(plan: Plan, messages: Sequence[int], unsent: Iterable[int], times: LookTimes, gap: int, *, alone: bool) -> Steps[int]:
        now, alive = times.now, times.wake is not None
        new = planned_wakes(plan, messages, unsent, now, gap, alive=alive, alone=alone)
        plan = plan.with_wakes(new, now)._replace(woke=now if alive else plan.woke)
        yield from write(SWEEPS, PK_PLAN, Upsert(PLAN_ROW, PLAN.encode(plan)))
        yield from send_wakes(new)
        return len(new)

    return [(protocol, "ask_wake", ask_wake), (protocol, "end_look", end_look)]


def refused_wakes_named() -> list[Patch]:
    def send(times: Sequence[int]) -> Steps[tuple[int, ...]]:
        yield from send_wakes(times)
        return tuple(times)

    return [(protocol, "send_wakes", send)]


def near_taken_for_sent() -> list[Patch]:
    """A shard whose message time has come counts as covered, although nobody has sent its message."""

    def covered(plan: Plan, message: int, now: int, gap: int, **given: Any) -> bool:
        return message < now + rules.ASKED_FROM or is_covered(plan, message, now, gap, **given)

    return [(protocol, "is_covered", covered), (rules, "is_covered", covered)]


def _planned_without(**left_out: Any) -> list[Patch]:
    def planned(plan: Plan, messages: Sequence[int], unsent: Iterable[int], now: int, gap: int, **given: Any) -> list[int]:
        seen = {"messages": messages, "unsent": unsent} | left_out
        return planned_wakes(plan, seen["messages"], seen["unsent"], now, gap, **given)

    return [(protocol, "planned_wakes", planned)]


def own_wakes_not_named() -> list[Patch]:
    """A look stores the plan as it has read it."""

    def end_look(plan: Plan, messages: Sequence[int], unsent: Iterable[int], times: LookTimes, gap: int, *, alone: bool) -> Steps[int]:
        now, alive = times.now, times.wake is not None
        new = planned_wakes(plan, messages, unsent, now, gap, alive=alive, alone=alone)
        yield from send_wakes(new)
        yield from write(SWEEPS, PK_PLAN, Upsert(PLAN_ROW, PLAN.encode(plan.with_wakes((), now))))
        return len(new)

    return [(protocol, "end_look", end_look)]


def nearest_wakes_not_named() -> list[Patch]:
    """A plan without room for all wakes names the last ones."""
    plain = Plan.with_wakes

    def with_wakes(plan: Plan, more: Iterable[int], now: int) -> Plan:
        return plan._replace(wakes=plain(plan, more, now).wakes[-2:])

    return [(Plan, "with_wakes", with_wakes)]


def _far_wakes_only(play: Any) -> Any:
    return dataclasses.replace(play, filers=(), wakes=(0, 1_500, 1_520), looks=1, until=900, stuck=0)


def silence_not_seen() -> list[Patch]:
    return [(rules, "LOOK_EVERY_ALONE", rules.LOOK_EVERY)]


def early_messages_planned_as_usual() -> list[Patch]:
    """Filers ask for wakes before the usual time of a message that comes earlier."""
    return [(rules, "_judged", lambda message, gap, **given: message)]


def early_messages_sent_as_usual() -> list[Patch]:
    """A look sends messages as usual, although no pause is short enough."""
    return [(Horizons, "at", lambda horizons, plan, gap, now, **given: horizons)]


MUTANTS = [
    Mutant("a wake that is due now trusted", "two", due_wake_trusted),
    Mutant("clocks trusted to the millisecond", "clocks", clocks_trusted),
    Mutant("one wake only", "stuck", one_wake),
    Mutant("a second wake at any time", "far", second_wake_at_any_time),
    Mutant("the plan before its wakes", "killed_far", plan_before_wakes),
    Mutant("a plan that names refused wakes", "refused", refused_wakes_named),
    Mutant("a wake that leaves its look to another one", "stalls", lambda: [(world, "LOOKS_FIRST", False)]),
    Mutant("a plan that is read before the row is stored", "stalls", lambda: [(world, "FILES_FIRST", False)]),
    Mutant("an old plan judged by the time of its reading", "cached", lambda: [(world, "CACHE_ASKED_ANEW", False)]),
    Mutant("a message time that has come taken for a message", "late", near_taken_for_sent),
    Mutant("a look that reads the index as far as it sends", "ahead", lambda: [(rules, "LOOK_FAR", DISPATCH_AHEAD)]),
    Mutant("a next look in spite of what it must find", "two", lambda: _planned_without(unsent=())),
    Mutant("pauses that nobody fills", "two", lambda: _planned_without(messages=())),
    Mutant("a pause before a shard as long as one that a wake ends", "two", lambda: [(rules, "GAP_MARGIN", 0)]),
    Mutant("a look that does not name its own wakes", "far", own_wakes_not_named, _far_wakes_only),
    Mutant("a plan that forgets the nearest wakes", "far", nearest_wakes_not_named, _far_wakes_only),
    Mutant("a silent timer taken for one that runs", "alone", silence_not_seen),
    Mutant("earlier messages with wakes at the usual time", "early", early_messages_planned_as_usual),
    Mutant("messages at the usual time without an instance", "early", early_messages_sent_as_usual),
]


def hunt(mutant: Mutant, level: int = 0) -> Report:
    """Hunt the mutant."""
    with mutant.applied():
        return explore(WakeWorld(mutant.change(PLAYS[mutant.play](level))))
