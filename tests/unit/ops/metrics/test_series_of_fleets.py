"""The number of series is bounded whatever the number of fleets, and a fleet with an alarm is named among hundreds."""

from __future__ import annotations

from collections import Counter

from shared.checkpoints.service.views import TurnFigures
from shared.engine.sweeps import MAX_NAMED_ALARMS, MAX_NAMED_FLEETS, OTHER_FLEETS, named_fleets
from shared.fleets.watch.figures import FleetFigures
from shared.maintenance.rows import INDEX
from shared.maintenance.service.figures import MaintenanceFigures, read_figures
from shared.ops.metrics.families import MetricsSnapshot, collected
from shared.storage.names import MAINTENANCE
from shared.storage.ports import Insert
from tests.paths import ROOT
from tests.unit.scheduler.harness import World

KEYS = [f"shop:cluster-{number:03d}" for number in range(300)]


def series(fleet: str, turns: int) -> int:
    """The series of one fleet with all figures."""
    seen = MetricsSnapshot(
        0,
        fleets=[FleetFigures("shop", fleet, 3, 2, 0, 0, 1.0, ())],
        maintenance=[MaintenanceFigures("shop", fleet, Counter())],
        turns=[TurnFigures("shop", fleet, *([1] * (len(TurnFigures._fields) - 2)))] * turns,
    )
    return sum("fleet" in sample.labels for family in collected(seen) for sample in family.samples)


def test_fleets_have_as_many_series_at_most_as_the_reference_says() -> None:
    one, others, turns = series("db", 0), series(OTHER_FLEETS, 0), series("db", 1) - series("db", 0)
    most = (MAX_NAMED_FLEETS + MAX_NAMED_ALARMS) * one + others + 100 * turns
    text = (ROOT / "docs" / "reference" / "observability.md").read_text()
    assert f"at most {most:,} series" in text


def test_fleets_with_an_alarm_are_named_beyond_the_first_hundred_and_not_without_end() -> None:
    assert named_fleets(KEYS, {KEYS[7], KEYS[250]}) == [*KEYS[:100], KEYS[250]]
    assert named_fleets(KEYS, set(KEYS)) == KEYS[:200]
    assert named_fleets(KEYS[:3], set()) == KEYS[:3]


async def test_alarms_of_three_hundred_fleets_are_all_counted() -> None:
    world = await World().open()
    for number, key in enumerate(KEYS):
        await world.tables.write(MAINTENANCE, INDEX, [Insert(key, {"alarms": '{"late":2}' if number % 2 else "{}"})])
    found = await read_figures(world.tables)
    await world.close()
    assert (len(found), sum(each.alarms["late"] for each in found)) == (201, 300)
    assert found[-1] == MaintenanceFigures(OTHER_FLEETS, OTHER_FLEETS, Counter())
    assert {each.fleet for each in found if each.alarms["late"]} == {key.partition(":")[2] for key in KEYS[1::2]}
