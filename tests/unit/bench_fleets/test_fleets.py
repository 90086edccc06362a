"""The model of many fleets: a small wave ends well, and its figures scale with the number of fleets."""

from __future__ import annotations

import pytest

from bench.fleets.figures import figures_of
from bench.fleets.world import Outcome, Wave, play

FEW, MANY = 4, 12


@pytest.fixture(scope="module")
def outcomes() -> dict[int, Outcome]:
    """The same wave over few fleets and over many."""
    wave = {"sample": 1, "nodes": 9, "partitions": 9, "announced": 20.0, "notice": 100.0, "listed": 20.0, "length": 170.0, "instances": 2}
    return {count: play(Wave(fleets=count, **wave)) for count in (FEW, MANY)}  # type: ignore[arg-type]


def test_every_node_of_the_wave_is_approved_and_no_partition_stays_without_an_owner(outcomes: dict[int, Outcome]) -> None:
    for found in outcomes.values():
        assert (len(found.approved), found.unapproved, found.lost) == (3, 0, 0)
        assert found.approved[0] > 0 and found.approved[-1] < 30, "between the time to prepare and NotBefore"


def test_figures_of_agents_keepers_and_sweeps_scale_with_the_number_of_fleets(outcomes: dict[int, Outcome]) -> None:
    few, many = ({figure.name: figure.value or 0.0 for figure in figures_of(outcomes[count])} for count in (FEW, MANY))
    for name in ("requests of agents, wave", "requests of keepers, quiet", "requests of keepers, wave"):
        assert many[f"fleets: {name}"] / few[f"fleets: {name}"] == pytest.approx(MANY / FEW, rel=0.3), name
    requests = {
        count: sum(scan.requests for scan in outcomes[count].scans if scan.part == "maintenance inspection") for count in (FEW, MANY)
    }
    assert requests[MANY] / requests[FEW] == pytest.approx(MANY / FEW, rel=0.3)
    assert all(not scan.failed for found in outcomes.values() for scan in found.scans)


def test_every_run_of_a_sweep_visits_all_fleets(outcomes: dict[int, Outcome]) -> None:
    for count, found in outcomes.items():
        assert {scan.part for scan in found.scans} == {"takeover", "maintenance", "inspection", "maintenance inspection"}
        assert {scan.fleets for scan in found.scans} == {count}
