"""Broken long work: each mutant leaves out one rule of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.engine.effects import Write
from shared.scheduler import rules
from shared.scheduler.facets.finding import States
from shared.scheduler.facets.long_work import HeldToken, LongWork
from shared.scheduler.points import Facets
from shared.scheduler.properties.work_rows import work_of
from shared.scheduler.protocol import completing
from shared.storage.ports import ANY, Merge

from ..checking.mutants import Mutant, Patch, relay


def without_etag() -> list[Patch]:
    plain = completing._changed

    def changed(row: Any, change: Any, beside: Any = ()) -> Any:
        def loose(effect: Any) -> Any:
            if isinstance(effect, Write):
                return Write(effect.table, effect.pk, tuple(Merge(op.rk, op.props, ANY) for op in effect.ops if isinstance(op, Merge)))
            return effect

        return relay(plain(row, change, beside), loose)

    return [(completing, "_changed", changed)]


def any_token() -> list[Patch]:
    """The attempt and the epoch of a token are not compared."""

    def state_of(props: Mapping[str, Any], token: HeldToken) -> str:
        return "working" if work_of(props) is not None else "superseded"

    return [(completing, "state_of", state_of)]


def before_it_is_settled() -> list[Patch]:
    """A call that comes before the owner has stored the answer ends the event all the same."""
    plain_state, plain_settle = completing.state_of, completing.settle_work

    def state_of(props: Mapping[str, Any], token: HeldToken) -> str:
        found = plain_state(props, token)
        return "working" if found == "unsettled" else found

    def settle_work(address: Any, token: HeldToken, now: int, decide: Any, facets: Any) -> Any:
        def any_row(props: Mapping[str, Any]) -> rules.RowOutcome:
            if work_of(props) is not None:
                return decide(props)
            return rules.RowOutcome("delivered", {"ended": now, "work": '{"end":"completed"}'})

        return plain_settle(address, token, now, any_row, facets)

    return [(completing, "state_of", state_of), (completing, "settle_work", settle_work)]


def silence_in_spite_of_a_heartbeat() -> list[Patch]:
    def still(self: LongWork, outcome: rules.RowOutcome, props: Any) -> bool | None:
        return work_of(props) is not None if outcome.deadline is not None else None

    return [(LongWork, "still", still)]


def retried_while_it_works() -> list[Patch]:
    """The agenda takes an event that a receiver works on for a retry, which is claimed before the deadline."""
    return [(rules, "work_of", lambda props: None)]


def dead_without_its_row() -> list[Patch]:
    plain = completing._prepare

    def prepare(row: Any, outcome: rules.RowOutcome, needed: int | None, facets: Facets) -> Any:
        return plain(row, outcome, needed, Facets(tuple(each for each in facets.each if not isinstance(each, States))))

    return [(completing, "_prepare", prepare)]


LONG_WORK_MUTANTS = [
    Mutant("a completion without the ETag", "work cancel", without_etag),
    Mutant("a token that counts for any attempt", "work deadline", any_token),
    Mutant("a completion before the answer is stored", "work", before_it_is_settled),
    Mutant("a silence in spite of a heartbeat", "work heartbeat", silence_in_spite_of_a_heartbeat),
    Mutant("a retry while the receiver works", "work heartbeat", retried_while_it_works),
    Mutant("a refused event without its state row", "work dies", dead_without_its_row),
]
