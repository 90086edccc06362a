"""What a chain does next: pure functions of a definition and the time.

A chain goes on in three steps, each safe to be cut off behind:

    claimed    the occurrences about to become events are named in the definition      (one write, on its ETag)
    (stored)   the events, under ids that follow from the definition                   (again and again: the same events)
    advanced   they are done, and the pointer stands at the next occurrence            (one transaction, on its ETag)

A change (other content, pause, resume, delete) makes a new revision at once, and with it names what the former one had claimed (`Undo`).
Whoever meets that takes it back, event by event, before anything else: `undone`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from ...core.clock import Millis
from ...storage.ports import Row
from ..timings import CLOCK_SKEW, DEFAULT_GRACE, KEEP_DELETED_SCHEDULE, OCCURRENCES_AHEAD
from .definition import Definition, Undo, offset, pointed
from .model import Recurrence
from .timing import occurrences, previous

BATCH = 500
"""Most occurrences of one schedule that one sweep makes events of; the next sweep goes on."""


class Plan(NamedTuple):
    """What a sweep does: occurrences to make events of, and how far the chain has come then."""

    fire: tuple[Millis, ...]
    done: Millis


def plan(definition: Definition, now: Millis) -> Plan:
    """The occurrences that are not done and due within `OCCURRENCES_AHEAD`; of those over `DEFAULT_GRACE` late, what the policy says.

    With jitter an occurrence is late from the end of its window on.
    """
    timing, catch_up, done = definition.timing, definition.spec.catch_up, definition.done
    horizon, late = now + OCCURRENCES_AHEAD, now - DEFAULT_GRACE - (definition.spec.jitter or 0) - 1
    if horizon <= done:
        return Plan((), done)
    fire: list[Millis] = []
    if done < late:
        oldest = max(done, now - catch_up.within - 1)
        if catch_up.policy == "all":
            done = oldest
        else:
            missed = previous(timing, late, oldest) if catch_up.policy == "last" else None
            if missed is not None and missed.at not in definition.taken:
                fire.append(missed.at)
            done = late
    for found in occurrences(timing, done):
        if found.at > horizon:
            break
        if found.at in definition.taken:
            continue
        if len(fire) == BATCH:
            return Plan(tuple(fire), fire[-1])
        fire.append(found.at)
    return Plan(tuple(fire), horizon)


def in_turn(pointers: Iterable[Row]) -> list[Row]:
    """Pointers, the earliest first, so that the tenants take turns: one's very many schedules do not put another's behind them."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, int, Row]] = []
    for place, row in enumerate(pointers):
        tenant, _ = pointed(row.rk)
        ranked.append((turns[tenant], place, row))
        turns[tenant] += 1
    return [row for *_, row in sorted(ranked, key=lambda each: each[:2])]


def pruned(definition: Definition, now: Millis) -> Definition:
    """The definition without the occurrences that no change can reach any more; `last` remembers the latest of them.

    A change goes back to `now`, or to the oldest event that waits in its jitter's window; `CLOCK_SKEW` is for clocks of other instances.
    """
    reach = min(definition.done, now - (definition.spec.jitter or 0) - CLOCK_SKEW)
    return replace(
        definition,
        ahead=tuple(at for at in definition.ahead if at > reach),
        taken=tuple(at for at in definition.taken if at > reach),
        last=last_of(definition, now),
    )


def last_of(definition: Definition, now: Millis) -> Millis | None:
    """The latest occurrence that became an event and whose time has come."""
    known = (definition.last, *definition.ahead, *definition.taken)
    return max((at for at in known if at is not None and at <= now), default=None)


def next_of(definition: Definition, after: Millis) -> Millis | None:
    """The first occurrence later than `after`, or None."""
    found = occurrences(definition.timing, after)
    return next((each.at for each in found if each.at not in definition.taken), None)


def pointed_at(definition: Definition, now: Millis) -> Definition:
    """The definition with the pointer that its state wants."""
    at: Millis | None
    if definition.undo is not None:
        at = now
    elif definition.deleted:
        at = max(now, definition.burnt) + KEEP_DELETED_SCHEDULE
    else:
        at = None if definition.paused else next_of(definition, definition.done)
    return replace(definition, pointer="" if at is None else definition.pointer_at(at))


def claimed(definition: Definition, planned: Plan, now: Millis) -> Definition:
    """Step 1: what is about to be stored is named."""
    kept = pruned(definition, now)
    return replace(kept, ahead=tuple(sorted({*kept.ahead, *planned.fire})))


def advanced(definition: Definition, planned: Plan, now: Millis) -> Definition:
    """Step 3: it is stored."""
    return pointed_at(pruned(replace(definition, done=max(definition.done, planned.done)), now), now)


def created(former: Definition | None, fresh: Definition, now: Millis) -> Definition:
    """A new schedule, which may follow on a deleted one (without undo) of the same name."""
    if former is not None:
        burnt = max(former.burnt, *former.ahead, 0)
        done = _from_now(former, now)
        fresh = replace(fresh, revision=former.revision + 1, burnt=burnt, taken=former.taken, done=done, etag=former.etag)
    return pointed_at(fresh, now)


def changed(definition: Definition, now: Millis, by: str, *, replay: bool = False, **changes: Any) -> Definition:
    """A new revision. `replay`: the rule stays as it is, so the new revision takes over every occurrence that can be taken back.

    What is due already has had its time: it is left to fire.
    """
    known = pruned(definition, now)
    waiting = tuple(at for at in known.ahead if at > known.done or _due(known, at) > now)
    undo = Undo(known.revision, known.burnt, waiting, replay) if waiting else None
    new: Definition = replace(
        known,
        revision=known.revision + 1,
        by=by,
        burnt=max(known.burnt, *known.ahead, 0),
        ahead=(),
        taken=tuple(sorted({*known.taken, *known.ahead}.difference(waiting))),
        undo=undo,
        **changes,
    )
    return pointed_at(new, now)


def _due(definition: Definition, at: Millis) -> Millis:
    return at + offset(definition.tenant, definition.id, at, definition.spec.jitter)


def _from_now(definition: Definition, now: Millis) -> Millis:
    # Never behind what has fired, whatever the clock says.
    return max(now, definition.last or 0)


def redefined(definition: Definition, spec: Recurrence, body: bytes, now: Millis, by: str) -> Definition:
    """Other content. While the rule is the same its occurrences go on without a gap; another rule holds from now on."""
    same = timing_of(spec) == timing_of(definition.spec)
    return changed(definition, now, by, replay=same, spec=spec, body=body, done=definition.done if same else _from_now(definition, now))


def paused(definition: Definition, now: Millis, by: str) -> Definition:
    return changed(definition, now, by, paused=True)


def resumed(definition: Definition, now: Millis, by: str) -> Definition:
    """Goes on from now: what would have occurred while paused never fires."""
    return changed(definition, now, by, paused=False, done=_from_now(definition, now))


def deleted(definition: Definition, now: Millis, by: str) -> Definition:
    return changed(definition, now, by, deleted=True)


def undone(definition: Definition, cancelled: Iterable[Millis], taken: Iterable[Millis], now: Millis) -> Definition:
    """The former revision is out of the way: what was taken back may be made anew, what was not counts as fired."""
    undo = definition.undo
    assert undo is not None
    back = sorted(cancelled)
    done = min(definition.done, back[0] - 1) if back and undo.replay and not definition.paused else definition.done
    new = replace(definition, undo=None, done=done, taken=tuple(sorted({*definition.taken, *taken})))
    return pointed_at(pruned(new, now), now)


def timing_of(spec: Recurrence) -> tuple[Any, ...]:
    """What decides when occurrences are, and when they are due."""
    return spec.cron, spec.every, spec.timezone or "UTC", spec.start, spec.end, spec.jitter
