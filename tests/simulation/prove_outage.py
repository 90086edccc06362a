"""The outage of `test_outage`, with other seeds."""

from __future__ import annotations

import pytest

from tests.proofs.facts import note

from . import test_outage as outage

PARTS = 3


@pytest.mark.parametrize("seed", range(2, 9))
def test_everything_fires_once_at_the_set_rate_and_fresh_events_are_punctual(seed: int) -> None:
    outage.test_everything_fires_once_and_nothing_is_left(seed)
    outage.test_backlog_drains_at_the_set_rate(seed)
    outage.test_fresh_events_are_as_punctual_as_without_a_backlog(seed)
    outage.test_shards_spread_evenly_over_the_instances(seed)
    note(events=outage.figures(outage.LONG, seed).expected.total())
