"""The benchmark of growth fills storage with each kind, measures it, and shows what grows."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bench.growth.cell import Cell, Effort, Spent, Stage
from bench.growth.chart import LINES, draw
from bench.growth.figures import KINDS, figures, sizes
from bench.tools.stage import Run, application
from shared.storage import memory_storage
from shared.whatif.twin.loop import LoopClock, VirtualLoop, run_to_end

FEW = Effort(rounds=1, posts=5, herd=20, stream=10, over=500, lists=2, sweeps=2)
FREE = Spent(10.0, 1.0, 2.0)
CELL = Cell("tenants", 1, *[FREE] * 8, 900, 300, 1, 2, 2**20)


def measured(kind: str, size: int) -> Cell:
    """Fill storage in memory and measure it, on virtual time."""
    loop, found = VirtualLoop(), list[Cell]()
    clock = LoopClock(loop)

    async def work() -> None:
        storage = memory_storage(clock)
        async with application("UseDevelopmentStorage=true", clock=clock, storage=storage) as (app, receiver):
            stage = Stage(app, receiver, storage.queues, clock)
            await stage.fill(kind, size)
            found.append(await stage.measure(kind, size, FEW))

    run_to_end(loop, work())
    return found[0]


@pytest.mark.parametrize(("kind", "size"), [("events", 250), ("tenants", 7), ("schedules", 7), ("channels", 7)])
def test_each_kind_is_filled_and_measured(kind: str, size: int) -> None:
    found = measured(kind, size)
    assert (found.kind, found.size) == (kind, size)
    assert all(
        each.cpu > 0 for each in (found.post, found.spread, found.herd, found.listed, found.events, found.stats, found.sweep, found.hourly)
    )
    assert found.post_calls > 100 and found.herd_calls > 100
    assert 1 <= found.post.transactions < 8 and 0 < found.herd.transactions < 2
    assert 0 <= found.p50 <= found.p99 and found.memory > 2**20


def test_posts_of_many_tenants_need_a_shard_each() -> None:
    found = measured("tenants", 7)
    assert found.spread.transactions > 3 * found.post.transactions


def test_growth_is_the_factor_between_the_smallest_and_the_largest_size() -> None:
    cells = [CELL, replace(CELL, size=100, post=replace(FREE, cpu=11.0)), replace(CELL, size=10_000, post=replace(FREE, cpu=15.0))]
    found = {each.name: each for each in figures(cells)}
    post = found["CPU of a POST, tenants: growth"]
    assert (post.value, post.reached, post.note) == (1.5, False, "us with 1: 10.0, 100: 11.0, 10,000: 15.0")
    assert found["transactions of a POST, tenants: growth"].reached is True
    assert found["CPU of a sweep, tenants: growth"].reached is None
    assert found["lateness p99, 10,000 tenants"].value == 2


def test_lists_are_compared_from_the_first_full_page_on() -> None:
    cells = [CELL, *(replace(CELL, size=size, listed=replace(FREE, cpu=89.0)) for size in (100, 10_000))]
    [found] = [each for each in figures(cells) if each.name.startswith("CPU of a list")]
    assert (found.value, found.reached) == (1.0, True)


def test_scale_is_a_further_number_of_open_events() -> None:
    assert [size for kind, size in sizes(Run(scale=1_000_000)) if kind == "events"] == [10_000, 100_000, 1_000_000]
    assert [size for kind, size in sizes(Run(quick=True)) if kind == "tenants"] == [1, 100]


def test_chart_has_a_line_for_each_measure_and_kind() -> None:
    cells = [replace(CELL, kind=kind, size=size) for kind in KINDS for size in (1, 100)]
    root = ElementTree.fromstring(draw([dict(each.details) for each in figures(cells)]))
    assert len(root.findall(".//{http://www.w3.org/2000/svg}polyline")) == len(KINDS) * len(LINES)
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == len(KINDS) * len(LINES) * 2
