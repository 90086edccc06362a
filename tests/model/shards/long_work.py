"""Plays of long work: a receiver accepts an event, and completes, fails or extends it, while owners come and go and users cancel it.

What must hold, besides the rules of every play: W1, an event is not started after its completion was acknowledged; W2, nor before the
deadline that a heartbeat was told; W3, no receiver changes the work of another attempt; W4, no event is both cancelled and completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shared.engine.effects import Get
from shared.scheduler import rules
from shared.scheduler.facets import FACETS
from shared.scheduler.facets.long_work import completed, failed, heard
from shared.scheduler.keys import index_key, index_partition
from shared.scheduler.properties.work_rows import work_of
from shared.scheduler.protocol import completing
from shared.scheduler.shard import gate
from shared.storage.names import EVENTS, SHARDS

from ..checking.state import Budget, Now, Play, Told
from .actors import CHANNEL, DUE, POLICY, SPEC, TENANT, canceller, token
from .plays import A1, Starts, always, play

DEADLINE = DUE + SPEC.within
LATER = DEADLINE + 4 * DUE


class Heard(NamedTuple):
    """The change of a heartbeat. A tuple, so that machines which differ in the time are different."""

    now: int

    def __call__(self, props: Mapping[str, Any]) -> Any:
        work = work_of(props)
        assert work is not None
        return heard(props, work, self.now)


class Ended(NamedTuple):
    """The outcome of a call that ends work."""

    verb: str
    now: int

    def __call__(self, props: Mapping[str, Any]) -> rules.RowOutcome:
        work = work_of(props)
        assert work is not None
        if self.verb == "completed":
            return completed(props, work, self.now)
        return failed(props, work, POLICY, now=self.now, error="e", final=self.verb == "refused")


def receiver(attempt: int, epoch: int, *verbs: str) -> Any:
    """`scheduler.long_work`: a receiver's calls about one attempt, one after the other. A call that comes too early is made once more."""
    held = token(attempt, epoch)
    for verb in verbs:
        for _ in range(2):
            now = yield Now()
            if verb == "heard":
                found = yield from completing.extend_work(A1, held, Heard(now))
            else:
                found = yield from completing.settle_work(A1, held, now, Ended(verb, now), FACETS)
            assert found is not None  # rows of this table stay
            if found.state != "unsettled":
                break
        if verb == "heard" and found.state == "working":
            yield Told((("heard", ("x", int(found.row.props["next"]))),))
        elif found.state == {"refused": "failed"}.get(verb, verb):
            yield Told(((str(found.state), "x"),))
    return ()


def _accepted(attempt: int, epoch: int) -> Callable[[Any], bool]:
    return lambda acked: ("accepted", ("x", attempt, epoch)) in acked


def _receivers(*verbs: str) -> Starts:
    """The receivers of the first two attempts, under each epoch that they may have. Their names begin with the attempt and the epoch."""
    places = ((1, 1), (1, 2), (2, 1), (2, 2))
    return {f"r{n}.{e}": ("writer", lambda n=n, e=e: receiver(n, e, *verbs), _accepted(n, e)) for n, e in places}


def _shard(**more: Any) -> frozenset[Any]:
    """A resting shard with one event that is due."""
    index = {"state": "resting", "wake": 0, "bucket": "197001010000", "tenant": TENANT}
    held = gate.Gate("resting", "o0", 0, 1, index_key(A1.shard, 0), "197001010000", gate.Counts(1))
    row = {"id": "x", "state": "scheduled", "due": DUE, "created": 0, "channel": CHANNEL, **more}
    return frozenset(
        {
            ((EVENTS, A1.shard, "gate"), 1, tuple(sorted(held.props().items()))),
            ((EVENTS, A1.shard, A1.row), 1, tuple(sorted(row.items()))),
            ((SHARDS, index_partition(A1.shard), index_key(A1.shard, 0)), 1, tuple(sorted(index.items()))),
        }
    )


def _play(name: str, budget: Budget, starts: Starts, *times: int, **more: Any) -> Play:
    stored: Starts = {"a": ("user", _stored, always)}
    return play(name, budget, stored | starts, stored=_shard(**more), times=times or (DUE,), due={"x": frozenset({DUE})})


def _stored() -> Any:
    """Whoever has stored the event."""
    yield Get(EVENTS, A1.shard, A1.row)
    return (("stored", "x"),)


def _plays() -> dict[str, Callable[[int], Play]]:
    return {
        # The owner crashes between the answer 202 and the stored state, or its transaction is lost; the receiver calls at once.
        "work": lambda level: _play(
            "work", Budget(lost=level, crash=1, later=1 + level, suspect=level, owners=2), _receivers("completed"), DUE
        ),
        # Completion, and the deadline, at the same moment.
        "work deadline": lambda level: _play(
            "work deadline", Budget(lost=level, crash=level, later=2, owners=2 + level), _receivers("completed"), DUE, DEADLINE, LATER
        ),
        # Heartbeats extend the time while an owner counts it as over.
        "work heartbeat": lambda level: _play(
            "work heartbeat", Budget(lost=level, later=1, crash=level, owners=2), _receivers("heard", "completed"), DUE, DEADLINE, LATER
        ),
        # The event fails before its deadline, is retried, and completed; or it dies.
        "work fails": lambda level: _play(
            "work fails", Budget(lost=1, crash=level, later=1 + level, owners=2), _receivers("failed"), DUE, LATER
        ),
        "work dies": lambda level: _play("work dies", Budget(lost=1, crash=1, later=1, owners=2), _receivers("refused"), DUE),
        # A cancel while the receiver works.
        "work cancel": lambda level: _play(
            "work cancel",
            Budget(lost=1, crash=level, later=1, owners=1 + level),
            {**_receivers("completed"), "c": ("user", lambda: canceller("x", A1), _accepted(1, 1))},
            DUE,
        ),
    }


LONG_WORK_PLAYS = _plays()
