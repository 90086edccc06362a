"""The points of the core: a facet acts at them, and the core needs no change for it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass
from typing import Any

import pytest

from shared.scheduler import rules
from shared.scheduler.facets import CAME, FACETS, ORIGIN, Answers, Copies, facets_for
from shared.scheduler.keys import MIRRORED, Address, event_row, minute_text, shard_key
from shared.scheduler.points import Facet, Facets
from shared.scheduler.properties.attempts import KeptAnswer
from shared.scheduler.protocol import ingest, moving, owning
from shared.scheduler.shard.gate import Counts, Gate
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Row, Upsert
from tests.unit.scheduler.harness import START, World

POINTS = {name for name, _ in inspect.getmembers(Facet) if not name.startswith("_")}
SHARD = shard_key("demo", "0000000000000000")
HERE, EVENT = Address(SHARD, event_row(0)), {"id": "x", "state": "scheduled", "due": START, "created": START, "channel": "default"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


class Noting(Facet):
    """A facet that notes the points at which it was called, in a list. It does nothing else."""

    def __init__(self, name: str, calls: list[tuple[str, str]]) -> None:
        self.name, self.calls = name, calls


def _noting(point: str) -> Any:
    def noted(facet: Noting, *given: Any) -> Any:
        facet.calls.append((facet.name, point))
        return getattr(Facet, point)(facet, *given)

    return noted


for _point in POINTS - {"own"}:
    setattr(Noting, _point, _noting(_point))


@dataclass(frozen=True)
class Stamping(Facet):
    """A facet with a row beside each shard that has events, a property on each event that ends, and one that copies leave behind."""

    @property
    def own(self) -> frozenset[str]:
        return frozenset({"stamp"})

    def before_store(self, filing: Any, events: Any) -> Any:
        yield from ingest.write(SWEEPS, "stamps", Upsert(filing.shard, {"bucket": filing.bucket}))

    def marks(self, props: Any, outcome: rules.RowOutcome) -> Any:
        return {"stamp": outcome.state}

    def beside(self, row: Row, outcome: rules.RowOutcome, change: Any) -> Any:
        change["stamped"] = True
        return [Upsert(f"s{row.rk}", {"state": outcome.state})]


def test_facets_together_have_every_point_of_a_facet() -> None:
    assert {name for name in vars(Facets) if name in POINTS} == POINTS


def test_each_point_reaches_all_facets_in_their_order() -> None:
    calls: list[tuple[str, str]] = []
    both = Facets((Noting("a", calls), Noting("b", calls)))
    row = Row(SHARD, HERE.row, EVENT, "1", 0, 0)
    outcome, gate = rules.RowOutcome("delivered", {}), Gate("owned", "o1", 1)
    filing = ingest.OpenShard(SHARD, "w", START, both).filing
    given: dict[str, tuple[Any, ...]] = {
        "recall": (gate,),
        "before_store": (filing, [EVENT]),
        "before_settle": (filing, Counts(1)),
        "still": (outcome, EVENT),
        "marks": (EVENT, outcome),
        "beside": (row, outcome, {}),
        "rows_beside": (outcome,),
        "written": ({}, EVENT),
        "owes": (EVENT,),
        "wakes_early": (EVENT,),
        "before_release": (filing, [row]),
        "kept": (gate, {}, 1),
        "touched": (EVENT,),
        "came_from": (HERE,),
        "on_move": (filing, [EVENT]),
        "at_end": (filing, gate, [row]),
        "before_removal": (filing, [row]),
        "at_removal": (filing, Counts(1)),
    }
    assert given.keys() == POINTS - {"own"}
    for point, arguments in given.items():
        calls.clear()
        found = getattr(both, point)(*arguments)
        assert not isinstance(found, Generator) or list(found) == []
        assert calls == [("a", point), ("b", point)]


async def test_a_new_facet_acts_when_events_are_stored_settled_and_moved(world: World) -> None:
    run, facets = world.app.scheduler.runner.run, Facets((Stamping(), *FACETS.each))
    opened = ingest.OpenShard(SHARD, "w", START, facets)
    await run(ingest.file_shard(SHARD, START, sent=True))
    await run(ingest.append(opened, [ingest.Entry(HERE.row, EVENT, 1)]))
    assert [(row.rk, row.props["bucket"]) for row in world.rows(SWEEPS) if row.pk == "stamps"] == [(SHARD, minute_text(START))]
    session = await run(owning.take(SHARD, opened.index, "o1", facets, ended="w"))
    assert isinstance(session, owning.OwnerSession)
    await run(owning.load(session))
    await run(owning.step(session, {}, [HERE.row]))
    await run(owning.step(session, {HERE.row: rules.RowOutcome("delivered", {})}, []))
    stored = {row.rk: row.props for row in world.rows(EVENTS)}
    assert stored[HERE.row]["stamp"] == "delivered" and stored[HERE.row]["stamped"] is True
    assert stored[f"s{HERE.row}"] == {"state": "delivered"}
    assert "stamp" not in moving.copied(stored[HERE.row], START, facets) and "stamp" in moving.copied(stored[HERE.row], START, FACETS)


def test_a_facet_that_writes_beside_an_event_is_taken_to_write_one_row_unless_it_says_how_many() -> None:
    outcome = rules.RowOutcome("delivered", {})
    answered = outcome._replace(answer=KeptAnswer(START, 1, ""))
    facets = Facets((Copies(), Answers(), Stamping(), Stamping()))
    assert (facets.rows_beside(outcome), facets.rows_beside(answered)) == (2, 3)


async def test_a_shard_calls_the_points_in_the_order_of_its_life(world: World) -> None:
    run, calls = world.app.scheduler.runner.run, list[tuple[str, str]]()
    facets = Facets((*FACETS.each, Noting("", calls)))
    opened = ingest.OpenShard(SHARD, "w", START, facets)
    await run(ingest.file_shard(SHARD, START, sent=True))
    await run(ingest.append(opened, [ingest.Entry(HERE.row, EVENT, 1)]))
    session = await run(owning.take(SHARD, opened.index, "o1", facets, ended="w"))
    assert isinstance(session, owning.OwnerSession)
    await run(owning.load(session))
    await run(owning.step(session, {}, [HERE.row]))
    await run(owning.step(session, {HERE.row: rules.RowOutcome("delivered", {"ended": START})}, []))
    await run(owning.finish(session, {}))
    claim, settle = ["before_store", "before_settle"], ["before_store", "still", "marks", "beside", "before_settle"]
    end = ["before_settle", "before_release", "kept", "at_end"]
    assert [point for _, point in calls] == ["before_store", "recall", *claim, *settle, *end]


def test_a_change_beside_the_owner_says_that_a_row_is_no_copy_any_more() -> None:
    assert FACETS.touched({**EVENT, ORIGIN: "7"}) == {ORIGIN: ""}
    assert FACETS.touched({**EVENT, ORIGIN: ""}) == FACETS.touched(EVENT) == {}


def test_only_a_mirrored_event_says_where_it_came_from() -> None:
    mirrored = Address(shard_key("demo", f"{MIRRORED}000000000000000"), HERE.row)
    assert FACETS.came_from(mirrored) == {CAME: mirrored.text}
    assert FACETS.came_from(HERE) == {}


def test_the_facets_of_a_tenant_are_those_of_all_with_what_it_asked_for() -> None:
    assert facets_for() is FACETS
    assert facets_for(["order"], notices=True) is facets_for(("order",), notices=True), "made once"
    assert [type(each) for each in facets_for(("order",), notices=True).each] == [type(each) for each in FACETS.each]
