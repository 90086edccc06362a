"""Changes of the partition count in histories in which everything else goes wrong, too; and bugs that must be found there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from shared.leases.node.notifications import ApplicationNotifier
from shared.leases.protocol import resizing
from tests.model.checking.mutants import Patch, patched
from tests.model.leases import resizing_mutants as mutants
from tests.simulation.leases.resizing import simulate_resizes

QUICK = 100
LONG = 10_000


def goes_on_by_the_former_count() -> list[Patch]:
    """The server renumbers its partitions, and the application does not learn the new count."""
    plain = ApplicationNotifier.report_resize

    def report_resize(self: ApplicationNotifier, spread: Any) -> bool:
        return plain(self, self.spread or spread)

    return [(ApplicationNotifier, "report_resize", report_resize)]


def nobody_carries_it_on() -> list[Patch]:
    def sweep(key: str) -> Any:
        return None
        yield

    return [(resizing, "sweep", sweep)]


PLANTED: dict[str, Callable[[], list[Patch]]] = {
    "opened at once": mutants.open_at_once,
    "closed while it is owned": mutants.close_owned,
    "claimed by a server of the former generation": mutants.any_generation,
    "claimed while it is closed": mutants.claim_closed,
    "epochs that start over": mutants.epochs_start_over,
    "released as open": mutants.release_open,
    "goes on by the former count": goes_on_by_the_former_count,
    "nobody carries it on": nobody_carries_it_on,
}


def run(first: int, end: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in range(first, end):
        report = simulate_resizes(seed)
        assert report.violation is None, f"seed {seed}: {report.violation}\n" + "\n".join(report.world.texts()[-60:])
        counts.update(report.counts)
    return counts


def test_no_key_has_two_owners_and_all_are_served_again() -> None:
    counts = run(0, QUICK)
    assert counts["resizes"] > QUICK


@pytest.mark.long
def test_no_key_has_two_owners_in_many_histories() -> None:
    run(QUICK, LONG)


@pytest.mark.parametrize("bug", list(PLANTED))
def test_a_planted_bug_is_found(bug: str) -> None:
    with patched(PLANTED[bug]()):
        assert any(simulate_resizes(seed).violation is not None for seed in range(QUICK))
