"""`FencedBatch`: who was given a higher epoch makes the store refuse all who have a lower one."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from devhost.azurite import ROOT
from shared import leases
from shared.core import errors
from shared.core.errors import OutcomeUnknown, Rejected, Unavailable
from shared.leases.node.fencing import FencedBatch, StaleEpoch
from shared.storage.blocking import run_through
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, RowQuery, WriteRefused

from ..conftest import Bench


def batch(bench: Bench, epoch: int) -> FencedBatch:
    return FencedBatch(bench.tables, "Data", "d", epoch)


def rows(bench: Bench) -> list[str]:
    return [row.rk for row in run_through(bench.memory.query(RowQuery("Data", "d"))).rows]


def test_a_former_owner_is_refused_as_a_whole(bench: Bench) -> None:
    first, second = batch(bench, 1), batch(bench, 2)
    first.take()
    assert isinstance(first.write([Insert("a", {"n": 1})]), Applied)
    second.take()
    with pytest.raises(StaleEpoch):
        first.write([Insert("b", {"n": 1}), Merge("a", {"n": 2}, ANY)])
    assert isinstance(second.write([Insert("c", {"n": 1})]), Applied)
    assert rows(bench) == ["a", "c", "fence", "fence-2"]


def test_a_former_owner_cannot_take_over_again(bench: Bench) -> None:
    batch(bench, 2).take()
    with pytest.raises(StaleEpoch):
        batch(bench, 1).take()
    with pytest.raises(StaleEpoch):
        batch(bench, 1).write([Insert("a", {})])


def test_nothing_is_written_before_taking(bench: Bench) -> None:
    with pytest.raises(StaleEpoch):
        batch(bench, 1).write([Insert("a", {})])


def test_positions_and_etags_are_those_of_the_given_operations(bench: Bench) -> None:
    mine = batch(bench, 1)
    mine.take()
    done = mine.write([Insert("a", {}), Insert("b", {})])
    assert isinstance(done, Applied) and len(done.etags) == 2
    assert mine.write([Merge("a", {"n": 1}, done.etags[0]), Insert("b", {})]) == WriteRefused(1, "exists")


@pytest.mark.parametrize("faults", [["lost"], ["gone"], ["gone", "lost"]])
@pytest.mark.parametrize("before", [False, True])
def test_a_take_over_whose_answer_is_lost_is_finished(bench: Bench, faults: list[str], before: bool) -> None:
    if before:
        batch(bench, 4).take()
    bench.tables.faults.extend(faults)
    mine = batch(bench, 5)
    mine.take()
    mine.write([Insert("a", {})])
    assert rows(bench) == ["a", "fence", "fence-5"]


def test_two_first_take_overs_do_not_both_stand(bench: Bench) -> None:
    """Both find no token; the slower one is refused by the head row, and looks again."""
    from shared.leases.protocol import fencing

    slow = fencing.take("Data", "d", 1)
    asked = next(slow)
    write = slow.send(bench.runner.perform(asked))
    batch(bench, 2).take()
    again = slow.send(bench.runner.perform(write))
    with pytest.raises(StopIteration) as ended:
        slow.send(bench.runner.perform(again))
    assert ended.value.value == "stale"
    assert rows(bench) == ["fence", "fence-2"]


def test_a_lost_batch_is_unknown(bench: Bench) -> None:
    mine = batch(bench, 1)
    mine.take()
    bench.tables.faults.extend(["lost"])
    with pytest.raises(OutcomeUnknown):
        mine.write([Insert("a", {})])


def test_answers_that_keep_getting_lost_end_a_take_over(bench: Bench) -> None:
    bench.tables.faults.extend(["gone"] * 20)
    with pytest.raises(Unavailable):
        batch(bench, 1).take()


def test_tokens_of_another_writer_are_reported(bench: Bench) -> None:
    run_through(bench.memory.write("Data", "d", [Insert("fence-3", {})]))
    with pytest.raises(ValueError, match="do not belong together"):
        batch(bench, 3).take()


@pytest.mark.parametrize("ops", [[], [Delete("fence-1", ANY)], [Insert("fence", {})], [Insert(str(n), {}) for n in range(100)]])
def test_batches_that_cannot_be_are_rejected(bench: Bench, ops: list[Op]) -> None:
    mine = batch(bench, 1)
    mine.take()
    with pytest.raises(Rejected):
        mine.write(ops)


def test_the_data_table_is_created_once_and_again_is_no_error() -> None:
    bench = Bench()
    rows = FencedBatch(bench.tables, "Orders", "00005", 1)
    with pytest.raises(Rejected):
        rows.take()
    rows.create_table()
    rows.create_table()
    rows.take()
    assert isinstance(rows.write([Insert("order-17", {"state": "paid"})]), Applied)


def test_every_error_that_the_page_names_can_be_imported_beside_the_batch() -> None:
    page = (ROOT / "docs/how-to/fence-your-writes.md").read_text().partition("## Fence your writes")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`([A-Z][A-Za-z]+)`", page) if name in vars(errors)}
    assert named >= {"StorageError", "Unavailable", "Rejected"}
    assert named <= set(leases.__all__)
    assert {getattr(leases, name) for name in named} == {getattr(errors, name) for name in named}


def test_the_example_handles_each_outcome(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    source = (ROOT / "docs/examples/leases/fenced.py").read_text()
    imported = next(line for line in source.splitlines() if line.startswith("from tocsin.leases import "))
    assert set(imported.removeprefix("from tocsin.leases import ").split(", ")) <= set(leases.__all__)
    scope: dict[str, Any] = {name: getattr(leases, name) for name in leases.__all__}
    monkeypatch.setattr(scope["HttpTables"], "from_connection_string", lambda text: bench.tables)
    monkeypatch.setenv("TABLES", "storage")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fenced.py", *arguments])
        exec(source.replace(imported, ""), dict(scope))
        return capsys.readouterr().out.strip()

    assert run("1", "order-17") == "order-17 is written"
    assert run("1", "order-17").startswith("order-17 is refused: ")
    bench.tables.faults.extend(["", "lost", ""])
    assert run("2", "order-18").startswith(("order-18 is written", "order-18 is refused"))
    assert run("1", "order-19") == "epoch 1 is over"
