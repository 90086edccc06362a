"""Keepers that publish loads, on virtual time: they balance soon, stay balanced under noise, and never get worse on the way."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from shared.leases.profiles import PROFILES
from shared.leases.rows import server_key
from shared.storage.ports import Delete, Op

from .balancing import MEASURE_EVERY, SETTLE, kcl, tocsin
from .history import listening
from .measured.fleet import Measured
from .skews import skews

SERVERS, PARTITIONS = 4, 32


@pytest.mark.parametrize("name", ["uniform", "zipf", "hot"])
def test_published_loads_are_balanced_within_minutes_and_then_hardly_anything_moves(name: str) -> None:
    skew = next(each for each in skews(PARTITIONS, SERVERS) if each.name == name)
    with listening():
        found, owners = tocsin(skew, SERVERS, PARTITIONS, 720.0, 1)
    assert found.balanced is not None and found.balanced <= 300
    assert found.share == 1 and found.late <= 2
    assert found.overshoot <= 0.05
    assert found.moves == 0 if name == "uniform" else found.moves <= PARTITIONS
    other = kcl(skew, owners, 720.0, 1)
    assert other.series[0][1] == pytest.approx(found.series[0][1]), "both begin with the same owners"


def test_shares_stay_equal_beside_a_keeper_of_a_former_release_and_loads_are_balanced_once_all_publish_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skew = next(each for each in skews(PARTITIONS, SERVERS) if each.name == "hot")
    fleet = Measured(PROFILES["default"], SERVERS, PARTITIONS, seed="mixed", app=False)
    dice, former = random.Random("mixed"), {server_key("s003")}
    write = fleet.world.store.write

    async def as_released(table: str, pk: str, ops: Sequence[Op]) -> Any:
        """A former release writes no loads."""
        return await write(table, pk, [_without_loads(op) if op.rk in former else op for op in ops])

    monkeypatch.setattr(fleet.world.store, "write", as_released)

    def measure() -> None:
        for node in fleet.nodes.values():
            for number in node.view.epochs:
                node.keeper_state.loads.report(number, skew.measured(number, fleet.now, dice))
        fleet.world.at(fleet.now + MEASURE_EVERY, measure)

    def is_uneven() -> bool:
        loads = [math.fsum(skew.load(number, fleet.now) for number in node.view.epochs) for node in fleet.nodes.values()]
        return max(loads) > 1.1 * max(math.fsum(loads) / SERVERS, *(skew.load(number, fleet.now) for number in range(PARTITIONS)))

    def replace_by(release: set[str]) -> None:
        """Restart the process as another release. It keeps its partitions."""
        fleet.nodes["s003"].keeper_state.stop(keep=True)
        fleet.until(lambda: not fleet.nodes["s003"].running, 60.0)
        former.clear()
        former.update(release)
        fleet.start("s003")

    with listening():
        fleet.start_all()
        fleet.run(SETTLE)
        moved = fleet.moves.total()
        measure()
        fleet.run(300.0)
        assert fleet.moves.total() == moved and fleet.balanced() and is_uneven(), "two kinds of plans would move partitions to and fro"
        replace_by(set())
        fleet.until(lambda: fleet.served() and not is_uneven(), 300.0)
        fleet.run(60.0)
        assert not fleet.balanced(), "counts differ so that loads do not"
        replace_by({server_key("s003")})
        fleet.until(fleet.balanced, 300.0)
        moved = fleet.moves.total()
        fleet.run(120.0)
        assert fleet.moves.total() == moved and fleet.balanced()


def _without_loads(op: Op) -> Op:
    return op if isinstance(op, Delete) else op._replace(props={name: value for name, value in op.props.items() if name != "loads"})
