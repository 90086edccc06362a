"""The next step of a chain: pure functions of a definition and the time.

A chain goes on in three steps, and may be interrupted after each:

    claimed    the definition names the occurrences that are about to become events    (one write, on its ETag)
    (stored)   the events are stored, under ids that follow from the definition        (repetitions store the same events)
    advanced   the occurrences are done, and the pointer is at the next one            (one transaction, on its ETag)

A change (other content, pause, resume, delete) makes a new revision at once, which names the claimed occurrences of the former one
(`RevisionUndo`). The next process that reads the definition cancels those events one by one before anything else: `undone`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any, NamedTuple

from ...core.clock import Millis
from ...storage.ports import Row
from ..timings import CLOCK_SKEW, DEFAULT_GRACE, KEEP_DELETED_SCHEDULE, MINUTE, OCCURRENCES_AHEAD
from . import timing
from .definition import Definition, RevisionUndo, offset, parse_pointer_key
from .model import Recurrence
from .timing import ScheduleOccurrence, occurrences, previous

BATCH = 500
"""Most occurrences of one schedule that one sweep turns into events; the next sweep goes on."""


class OccurrencePlan(NamedTuple):
    """The work of one sweep: occurrences to turn into events, and the time up to which the chain is done then."""

    fire: tuple[Millis, ...]
    done: Millis


def plan(definition: Definition, now: Millis) -> OccurrencePlan:
    """Return the occurrences within `OCCURRENCES_AHEAD` that are not done. The policy decides about those more than `DEFAULT_GRACE` late.

    With jitter, an occurrence counts as late from the end of its window.
    """
    timing, catch_up, done = definition.timing, definition.spec.catch_up, definition.done
    horizon, late = now + OCCURRENCES_AHEAD, now - DEFAULT_GRACE - (definition.spec.jitter or 0) - 1
    if horizon <= done:
        return OccurrencePlan((), done)
    fire: list[Millis] = []
    if done < late:
        oldest = max(done, now - catch_up.within - 1)
        if catch_up.policy == "all":
            done = oldest
        else:
            missed = previous(timing, late, oldest) if catch_up.policy == "last" else None
            if missed is not None and missed.at not in definition.taken and _gap_end(definition, missed.at) is None:
                fire.append(missed.at)
            done = late
    taken = frozenset(definition.taken)
    for found in _coming(definition, done):
        if found.at > horizon:
            break
        if found.at in taken:
            continue
        if len(fire) == BATCH:
            return OccurrencePlan(tuple(fire), fire[-1])
        fire.append(found.at)
    return OccurrencePlan(tuple(fire), horizon)


MOST_MISSED = BATCH
"""Missed occurrences that are counted."""


def missed(definition: Definition, planned: OccurrencePlan, now: Millis) -> list[Millis]:
    """Return the occurrences, at most `MOST_MISSED`, that no sweep has stored in time, and with which `planned` is done: `catch_up` says
    which of them still fire."""
    late = now - DEFAULT_GRACE - (definition.spec.jitter or 0) - 1
    if definition.done >= late:
        return []
    # Those that are named already were counted when they were.
    known = {*definition.taken, *definition.ahead}
    coming = takewhile(lambda at: at <= min(late, planned.done), (found.at for found in _coming(definition, definition.done)))
    return [at for at in islice(coming, MOST_MISSED) if at not in known]


def _gap_end(definition: Definition, at: Millis) -> Millis | None:
    """Return the end of the pause in which `at` is, or None."""
    return next((end for begin, end in definition.gaps if begin < at <= end), None)


def _coming(definition: Definition, after: Millis) -> Iterator[ScheduleOccurrence]:
    """Yield the occurrences later than `after` that are in no pause."""
    start: Millis | None = after
    while start is not None:
        begin, start = start, None
        for found in occurrences(definition.timing, begin):
            start = _gap_end(definition, found.at)
            if start is not None:
                break
            yield found


def in_turn(pointers: Iterable[Row]) -> list[Row]:
    """Sort pointers so that tenants take turns, the earliest first: one tenant's many schedules do not delay another's."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, int, Row]] = []
    for place, row in enumerate(pointers):
        tenant, _ = parse_pointer_key(row.rk)
        ranked.append((turns[tenant], place, row))
        turns[tenant] += 1
    return [row for *_, row in sorted(ranked, key=lambda each: each[:2])]


def pruned(definition: Definition, now: Millis) -> Definition:
    """Return the definition without the occurrences that no change can reach any more; `last` keeps the latest of them.

    A change reaches back to `now`, or to the oldest event that waits in its jitter's window. `CLOCK_SKEW` allows for clocks of other
    instances.
    """
    reach = min(definition.done, now - (definition.spec.jitter or 0) - CLOCK_SKEW)
    return replace(
        definition,
        ahead=tuple(at for at in definition.ahead if at > reach),
        taken=tuple(at for at in definition.taken if at > reach),
        last=last_of(definition, now),
        gaps=tuple(gap for gap in definition.gaps if gap[1] > definition.done),
    )


def last_of(definition: Definition, now: Millis) -> Millis | None:
    """Return the latest past occurrence that became an event."""
    known = (definition.last, *definition.ahead, *definition.taken)
    return max((at for at in known if at is not None and at <= now), default=None)


def next_of(definition: Definition, after: Millis) -> Millis | None:
    """Search for the first occurrence later than `after`; return None if there is none."""
    found, taken = _coming(definition, after), frozenset(definition.taken)
    return next((each.at for each in found if each.at not in taken), None)


def shown_next(definition: Definition, now: Millis) -> Millis | None:
    """Return the next occurrence as stored, or None. It is searched for only while a sweep is late, or a change in progress."""
    if definition.paused:
        return None
    if definition.undo is None:
        coming = min((at for at in definition.ahead if at > now), default=definition.following)
        if coming is None or coming > now:
            return coming
    return next_of(definition, now)


def overdue_of(definition: Definition, now: Millis) -> Millis | None:
    """Return the earliest occurrence that is over `DEFAULT_GRACE` late, without jitter, and that no sweep has stored; None if paused."""
    late = now - DEFAULT_GRACE - (definition.spec.jitter or 0) - 1
    if definition.paused or definition.done >= late:
        return None
    found = definition.following
    return found if found is not None and found <= late and found not in definition.ahead else None


def pointed_at(definition: Definition, now: Millis) -> Definition:
    """Return the definition with its next occurrence, and the pointer that its state needs."""
    following = None if definition.deleted else next_of(definition, definition.done)
    at: Millis | None
    if definition.undo is not None:
        at = now
    elif definition.deleted:
        at = max(now, definition.burnt) + KEEP_DELETED_SCHEDULE
    else:
        at = None if definition.paused else following if following is not None else _end_met_at(definition, now)
    zone_data = timing.release() if definition.spec.timezone not in (None, "UTC") else ""
    return replace(definition, following=following, zone_data=zone_data, pointer="" if at is None else definition.pointer_at(at))


def _end_met_at(definition: Definition, now: Millis) -> Millis | None:
    """Return the time of a pointer that a sweep meets once the last occurrence is due; None if it is.

    A sweep meets pointers that are up to `OCCURRENCES_AHEAD` later, by the minute.
    """
    due = max((_due(definition, at) for at in definition.ahead), default=now)
    return due + OCCURRENCES_AHEAD + MINUTE if due > now else None


def claimed(definition: Definition, planned: OccurrencePlan, now: Millis) -> Definition:
    """Step 1: name the occurrences that are about to be stored."""
    kept = pruned(definition, now)
    return replace(kept, ahead=tuple(sorted({*kept.ahead, *planned.fire})))


def has_unfinished(definition: Definition) -> bool:
    """Return True if occurrences are claimed that may not be stored: the claim's process is at it, failed, or has ended."""
    return any(at > definition.done for at in definition.ahead)


def advanced(definition: Definition, planned: OccurrencePlan, now: Millis) -> Definition:
    """Step 3: note that they are stored."""
    return pointed_at(pruned(replace(definition, done=max(definition.done, planned.done)), now), now)


def created(former: Definition | None, fresh: Definition, now: Millis) -> Definition:
    """Return a new schedule, which may follow a deleted one (without undo) of the same name."""
    if former is not None:
        burnt = max(former.burnt, *former.ahead, 0)
        done = _from_now(former, now)
        fresh = replace(fresh, revision=former.revision + 1, burnt=burnt, taken=former.taken, done=done, etag=former.etag)
    return pointed_at(fresh, now)


def changed(
    definition: Definition, now: Millis, by: str, *, replay: bool = False, keep_overdue: bool = False, **changes: Any
) -> Definition:
    """Return a new revision. replay: the rule is unchanged, so the new revision creates every cancelled occurrence again.

    Occurrences that are already due are left to fire; unless `keep_overdue`, only those that are known to be stored.
    """
    known = pruned(definition, now)
    waiting = tuple(at for at in known.ahead if _due(known, at) > now or (at > known.done and not keep_overdue))
    undo = RevisionUndo(known.revision, known.burnt, waiting, replay, tuple(known.spec.channels or ())) if waiting else None
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
    # Never before an occurrence that has fired, whatever the clock says.
    return max(now, definition.last or 0)


def redefined(
    definition: Definition, spec: Recurrence, body: bytes, now: Millis, by: str, calendar_days: tuple[int, ...] = ()
) -> Definition:
    """Return a revision with other content. Under the same rule, occurrences go on without a gap; another rule applies from now on."""
    same = timing_of(spec) == timing_of(definition.spec) and calendar_days == definition.calendar_days
    done = definition.done if same else _from_now(definition, now)
    return changed(definition, now, by, replay=same, spec=spec, body=body, calendar_days=calendar_days, done=done)


def paused(definition: Definition, now: Millis, by: str) -> Definition:
    """Return a revision that stands still. Occurrences up to now that have no event yet are owed under `catch_up: all`."""
    return changed(definition, now, by, paused=True, paused_at=now)


def resumed(definition: Definition, now: Millis, by: str) -> Definition:
    """Return a revision that goes on from now: occurrences during the pause never fire. Under `catch_up: all`, those before it do."""
    paused_at, start = definition.paused_at, _from_now(definition, now)
    if definition.spec.catch_up.policy == "all" and paused_at is not None and definition.done < paused_at:
        return changed(definition, now, by, paused=False, paused_at=None, gaps=(*definition.gaps, (paused_at, start)))
    return changed(definition, now, by, paused=False, paused_at=None, done=start)


def deleted(definition: Definition, now: Millis, by: str, *, keep_overdue: bool = False) -> Definition:
    """Return a revision without occurrences."""
    return changed(definition, now, by, keep_overdue=keep_overdue, deleted=True)


def undone(definition: Definition, cancelled: Iterable[Millis], taken: Iterable[Millis], now: Millis) -> Definition:
    """Return the definition after the former revision's events were cancelled.

    Cancelled ones may be created again; others count as fired.
    """
    undo = definition.undo
    assert undo is not None
    back = sorted(cancelled)
    done = min(definition.done, back[0] - 1) if back and undo.replay and not definition.paused else definition.done
    new = replace(definition, undo=None, done=done, taken=tuple(sorted({*definition.taken, *taken})))
    return pointed_at(pruned(new, now), now)


def timing_of(spec: Recurrence) -> tuple[Any, ...]:
    """Return the fields that decide when occurrences happen and when they are due."""
    return spec.cron, spec.every, spec.timezone or "UTC", spec.start, spec.end, spec.jitter, spec.exclude, spec.at_most_once_per
