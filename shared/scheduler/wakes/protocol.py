"""The protocol of planned wakes: generators of effects.

    filer   store the index row; read the plan; if no wake of it is early enough: send two wakes, then store them in the plan; answer
    look    read the index and send what is due; read the plan; send the missing wakes; store what has changed of the plan

Wakes are sent before the plan names them: a plan that names a wake which was never sent would keep others from sending it. Nothing is
written on a condition but what a filer adds, and that only to forget no wake that another one has added: whoever is unsure sends. A look
writes only what it has changed, so that it does not take back a shorter pause that another look has chosen meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from ...core.clock import Millis
from ...core.errors import StorageError
from ...engine import effects
from ...engine.effects import Steps, Written, get, write
from ...storage.names import QUEUE_SHARDS, SWEEPS
from ...storage.ports import ANY, Applied, Insert, Merge, Op, Replace, Row, Upsert, WriteRefused
from .rules import NO_PLAN, PLAN, Plan, after_wake, is_covered, planned_wakes, wakes_for

log = logging.getLogger(__name__)

PK_PLAN: Final = "plan"
PLAN_ROW: Final = "wakes"
NO_SHARD: Final = "~"
"""The shard that a wake's message names: no shard has this name. A release that does not know wakes finds nothing to do."""


def wake_text(at: Millis) -> str:
    """Return the text of a wake for the time `at`."""
    return orjson.dumps({"shard": NO_SHARD, "index": "look", "at": at}).decode()


def parse_wake(text: str) -> Millis | None:
    """Return the time of a wake; None for any other message."""
    if f'"{NO_SHARD}"' not in text:
        return None
    try:
        found: Any = orjson.loads(text)
        return int(found["at"]) if found["shard"] == NO_SHARD else None
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def plan_of(row: Row | None) -> Plan:
    """Return the plan of its row. A row that cannot be read counts as none: then more wakes are sent."""
    if row is None:
        return NO_PLAN
    try:
        return PLAN.decode(row.props)
    except (KeyError, TypeError, ValueError, OverflowError):
        return NO_PLAN


def read_plan() -> Steps[Plan]:
    """Return the plan as it is stored."""
    return plan_of((yield from get(SWEEPS, PK_PLAN, PLAN_ROW)))


def send_wakes(times: Sequence[Millis]) -> Steps[tuple[Millis, ...]]:
    """Send a wake for each time; return the times of those that the queue took."""
    taken: tuple[Millis, ...] = ()
    for at in times:
        if (yield from effects.send(QUEUE_SHARDS, wake_text(at), at)):
            taken = (*taken, at)
    return taken


def store_plan(op: Op) -> Steps[Written | None]:
    """Write the plan's row; return the answer, None if storage fails.

    A plan that cannot be stored is no failure of those whose wakes it names: these are in the queue.
    """
    try:
        return (yield from write(SWEEPS, PK_PLAN, op))
    except StorageError as error:
        log.info("The plan of wakes could not be stored: %s", error, extra={"action": "plan_unstored"})
        return None


def store_changes(read: Plan, plan: Plan) -> Steps[bool]:
    """Store what a look has changed of the plan that it has read; return True if it is stored."""
    answer: Written | None = None
    if read.looked:
        before = PLAN.encode(read)
        changed = {name: value for name, value in PLAN.encode(plan).items() if value != before[name]}
        answer = yield from store_plan(Merge(PLAN_ROW, changed, ANY))
    if not read.looked or isinstance(answer, WriteRefused):
        # Nobody has looked before, or the row cannot be read, or somebody has removed it.
        answer = yield from store_plan(Upsert(PLAN_ROW, PLAN.encode(plan)))
    return isinstance(answer, Applied)


def ask_wake(message: Millis, now: Millis, gap: Millis | None, *, sent: bool, warm: bool = False) -> Steps[Plan]:
    """Make sure that wakes come before a shard's message, after its index row is stored; return the plan.

    gap: a fixed one; None for the plan's own. The other parameters are those of `rules.is_covered`.
    """
    row = yield from get(SWEEPS, PK_PLAN, PLAN_ROW)
    plan = plan_of(row)
    pause = gap or plan.gap(now)
    if is_covered(plan, message, now, pause, sent=sent, warm=warm):
        return plan
    plan = plan.with_wakes((yield from send_wakes(wakes_for(message, now, pause, sent=sent, warm=warm))), now)
    op = Insert(PLAN_ROW, PLAN.encode(plan)) if row is None else Replace(PLAN_ROW, PLAN.encode(plan), row.etag)
    # If it is refused or lost, the wakes are in the queue nevertheless, and others who do not know of them send more.
    yield from store_plan(op)
    return plan


class LookTimes(NamedTuple):
    """The times of a look. began: before it read the index. now: after it read the plan. wake: the time of the wake that looks; None for
    the timer. started: start of the process."""

    began: Millis
    now: Millis
    wake: Millis | None
    started: Millis


class LookEnd(NamedTuple):
    """The end of a look. plan: the new one. sent: times of the wakes that it has sent. stored: True if the plan is stored."""

    plan: Plan
    sent: tuple[Millis, ...]
    stored: bool


def end_look(
    read: Plan,
    messages: Sequence[Millis],
    unsent: Iterable[Millis],
    times: LookTimes,
    gap: Millis | None,
    *,
    alone: bool,
    beside: Iterable[Millis] = (),
    unstored: Plan = NO_PLAN,
) -> Steps[LookEnd]:
    """End a look that has read the index, sent what is due, and read the plan: send the missing wakes, then store what has changed.

    gap: a fixed one; None for the plan's own. unstored: the plan of the process's last look, if it could not be stored. The other
    parameters are those of `rules.planned_wakes`.
    """
    now, alive = times.now, times.wake is not None
    plan = read.joined(unstored, now)
    if times.wake is not None:
        plan = after_wake(plan, times.wake, now, times.started)
    plan = plan.trusted(times.began, now)
    new = planned_wakes(plan, messages, unsent, now, gap or plan.gap(now), alive=alive, alone=alone, beside=beside)
    taken = yield from send_wakes(new)
    plan = plan.with_wakes(taken, now)._replace(looked=times.began, woke=now if alive else plan.woke)
    return LookEnd(plan, taken, (yield from store_changes(read, plan)))
