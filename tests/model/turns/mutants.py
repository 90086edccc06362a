"""Broken turns. Each leaves out one rule of the protocol; the checker must find what it leads to."""

from __future__ import annotations

import dataclasses
from typing import Any

from shared.checkpoints import rules, selection, timeouts, turns
from shared.checkpoints.node import rules as node
from shared.checkpoints.rows import TURN
from shared.storage.ports import ANY
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch

from . import coordinator, endless
from .plays import PLAYS
from .state import SLOWEST, Change, Play
from .world import World


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with the hole in it."""
    change: Any = mutant.change
    with mutant.applied():
        return explore(World(change(PLAYS[mutant.play](0))), limit=limit)


def hunt_endless(mutant: Mutant) -> Report:
    """Look for the fair run to which the hole leads."""
    change: Any = mutant.change
    with mutant.applied():
        return endless.follow(endless.Endless(change(endless.PLAYS[mutant.play](0))))


# -- the coordinator


def full_limit_late() -> list[Patch]:
    plain = timeouts.turn_limit
    return [(timeouts, "turn_limit", lambda timeout, age, drift: plain(timeout, 0, drift))]


def no_margin() -> list[Patch]:
    return [(timeouts, "MARGIN", 0)]


def no_drift() -> list[Patch]:
    plain = timeouts.turn_limit
    return [(timeouts, "turn_limit", lambda timeout, age, drift: plain(timeout, age, 0))]


def granted_after_revoke() -> list[Patch]:
    return [(turns, "is_free", lambda turn, holder, now: not turn.open)]


def pre_empted() -> list[Patch]:
    plain = turns.settle

    def settle(group: Any, holder: Any, now: int, settings: Any) -> Any:
        if group.turn.open and holder is not None and holder.role == "primary":
            turn = dataclasses.replace(group.turn, state="timed-out", reason="promoted", ended=now)
            return dataclasses.replace(group, turn=turn)
        return plain(group, holder, now, settings)

    return [(turns, "settle", settle)]


def _idle_without(**same: Any) -> list[Patch]:
    """Judge the holder's reports as if its row and the turn agreed in `same`."""
    plain = turns.is_idle

    def idle(turn: Any, holder: Any) -> bool:
        return plain(turn, dataclasses.replace(holder, **{name: getattr(turn, of) + more for name, (of, more) in same.items()}))

    return [(turns, "is_idle", idle)]


def freed_by_a_new_process() -> list[Patch]:
    return _idle_without(life=("handed_life", 0), seq=("handed_seq", 1))


def freed_by_the_report_that_was_handed_out() -> list[Patch]:
    return _idle_without(seq=("handed_seq", 1))


def handed_to_a_new_process() -> list[Patch]:
    plain = turns.hand_out

    def hand_out(group: Any, replica: Any, now: int, settings: Any) -> Any:
        fresh = dataclasses.replace(group, turn=dataclasses.replace(group.turn, attempt=0))
        after, limit = plain(fresh if replica.life != group.turn.handed_life else group, replica, now, settings)
        return (after, limit) if limit else (group, None)

    return [(rules, "hand_out", hand_out)]


def short_though_handed_out() -> list[Patch]:
    return [(turns, "_is_untaken", lambda turn, holder: True)]


def any_process_speaks() -> list[Patch]:
    plain = rules._classify

    def heard(before: Any, report: Any) -> Any:
        if before is not None and 1 < before.seq + 1 <= report.seq:
            return "next"
        return plain(before, report)

    return [(rules, "_classify", heard)]


def any_checkpoint_ends() -> list[Patch]:
    plain = turns.made_checkpoint
    return [(turns, "made_checkpoint", lambda turn, holder: plain(dataclasses.replace(turn, handed_last=0), holder))]


def turn_written_without_its_etag() -> list[Patch]:
    plain = coordinator.change

    def change(*args: Any) -> Change | None:
        found = plain(*args)
        return found and found._replace(rows=tuple((rk, ANY if rk == TURN else expected, row) for rk, expected, row in found.rows))

    return [(coordinator, "change", change)]


def latest_replaced() -> list[Patch]:
    plain = rules.publish

    def publish(view: Any, *args: Any) -> Any:
        return plain(dataclasses.replace(view, latest=None), *args)

    return [(rules, "publish", publish)]


def lost_turn_published() -> list[Patch]:
    plain = rules.publish

    def publish(view: Any, *args: Any) -> Any:
        turn = dataclasses.replace(view.group.turn, state="taking")
        return plain(dataclasses.replace(view, group=dataclasses.replace(view.group, turn=turn)), *args)

    return [(rules, "publish", publish)]


def freed_with_the_claim() -> list[Patch]:
    plain = rules.forget_claim

    def forgotten(group: Any) -> Any:
        turn = dataclasses.replace(group.turn, state="timed-out", reason="promoted") if group.turn.open else group.turn
        return dataclasses.replace(plain(group), turn=turn)

    return [(rules, "forget_claim", forgotten)]


# -- the replica


def _answered(change: Any) -> list[Patch]:
    plain = node.apply_answer

    def answered(me: Any, seq: int, answer: Any, now: float, *, may: bool) -> Any:
        return change(plain, me, seq, answer, now, may)

    return [(node, "apply_answer", answered)]


def limit_from_receipt() -> list[Patch]:
    def change(plain: Any, me: Any, seq: int, answer: Any, now: float, may: bool) -> Any:
        return plain(me if me.sent is None else dataclasses.replace(me, sent=now), seq, answer, now, may=may)

    return _answered(change)


def older_answer() -> list[Patch]:
    def change(plain: Any, me: Any, seq: int, answer: Any, now: float, may: bool) -> Any:
        if seq == me.seq and me.sent is not None:
            return plain(me, seq, answer, now, may=may)
        after, act = plain(dataclasses.replace(me, seq=seq, sent=now if me.sent is None else me.sent), seq, answer, now, may=may)
        return dataclasses.replace(after, seq=me.seq), act

    return _answered(change)


def begun_twice() -> list[Patch]:
    return _answered(lambda plain, me, seq, answer, now, may: plain(dataclasses.replace(me, begun=0), seq, answer, now, may=may))


def role_not_looked_at() -> list[Patch]:
    return _answered(lambda plain, me, seq, answer, now, may: plain(me, seq, answer, now, may=True))


def _asleep(play: Any) -> Any:
    """Its clock does not count the time that the machine sleeps."""
    return dataclasses.replace(play, rates=(0, SLOWEST))


def _b_asks_twice(play: Any) -> Any:
    assert isinstance(play, Play)
    return dataclasses.replace(play, until=3, nodes={**play.nodes, "b": play.nodes["b"]._replace(reports=2)})


def _all_answers(play: Any) -> Any:
    return dataclasses.replace(_b_asks_twice(play), until=0, latest_only=False)


MUTANTS = [
    Mutant("the full limit on a late fetch", "hand out", full_limit_late),
    Mutant("no margin for the steps of Date", "hand out", no_margin),
    Mutant("no room for a slow clock", "hand out", no_drift),
    Mutant("a clock that stands still while its machine sleeps", "drift", list, _asleep),
    Mutant("the next grant right after a revoke", "revoke", granted_after_revoke),
    Mutant("pre-emption of a holder that became primary", "promotion", pre_empted),
    Mutant("a turn freed by a new process of its holder", "crash", freed_by_a_new_process),
    Mutant("a turn freed by the report that it was handed out to", "revoke", freed_by_the_report_that_was_handed_out),
    Mutant("a turn handed out to a new process of its holder", "crash", handed_to_a_new_process),
    Mutant("too short, though it was handed out", "again", short_though_handed_out),
    Mutant("a report of a former process taken for one of the new", "crash", any_process_speaks, _b_asks_twice),
    Mutant("an earlier turn's checkpoint ends this one", "crash", any_checkpoint_ends),
    Mutant("the turn's row written without its ETag", "again", turn_written_without_its_etag),
    Mutant("a turn freed with the forgotten claim", "forgotten", freed_with_the_claim),
    Mutant("latest replaced by an older one", "latest", latest_replaced),
    Mutant("a lost turn published", "latest", lost_turn_published),
    Mutant("the limit counted from the receipt", "hand out", limit_from_receipt),
    Mutant("an answer to an older report acted upon", "revoke", older_answer, _all_answers),
    Mutant("a turn begun twice", "ends", begun_twice),
    Mutant("the role not looked at when the answer comes", "promotion", role_not_looked_at),
]


# -- what must come


def a_favourite() -> list[Patch]:
    return [(turns, "choose", lambda candidates, shares, draw, resting: (min(candidates).node, tuple(shares)))]


def nobody_forced() -> list[Patch]:
    return [(selection, "overdue", lambda waited, free: None)]


def never_timed_out() -> list[Patch]:
    plain = turns.settle
    return [
        (turns, "settle", lambda group, holder, now, settings: plain(group, holder, min(now, group.turn.granted), settings)),
    ]


def revoked_for_ever() -> list[Patch]:
    return [(turns, "is_free", lambda turn, holder, now: not turn.open and turn.state != "revoked")]


def _one_chance(play: Any) -> Any:
    return dataclasses.replace(play, draws=(0.0,))


ENDLESS_MUTANTS = [
    Mutant("always the first", "endless: quiet", a_favourite),
    Mutant("nobody is forced, and chance as bad as can be", "endless: quiet", nobody_forced),
    Mutant("turns have no end", "endless: crash", never_timed_out, _one_chance),
    Mutant("a revoked turn is never free", "endless: revoke", revoked_for_ever, _one_chance),
]
