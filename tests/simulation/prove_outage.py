"""After an outage of 45 minutes, with the platform's real polling: see `outage` for the scenario and what is measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import accumulate
from unittest.mock import patch

import pytest

from shared.scheduler import rules
from shared.scheduler.firing import attempt
from shared.scheduler.sweeps import backlog
from tests.simulation.world.outage import SHARD_EVENTS, TAKES, Figures, Scenario, play

NEVER = 1 << 60
PARTS = 4
SEEDS = range(1, 9)
"""A multiple of the parts, so that all tests of a seed are in one part, and share what was played."""
LONG = Scenario(late_shards=900, fresh_for=390.0)
SHORT = Scenario()
MOST_PARKED = 60.0
DELIVERY = round(TAKES * 1.5 * 1000)
"""The longest delivery, in milliseconds: a fresh event may wait for one slot to come free."""


@cache
def figures(scenario: Scenario, seed: int) -> Figures:
    return play(replace(scenario, seed=seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_fires_once_and_nothing_is_left(seed: int) -> None:
    found = figures(LONG, seed)
    assert Counter(each.id for each in found.arrivals) == found.expected and found.expected.total() > 18_000
    assert found.unfinished == 0 and min(each.late for each in found.arrivals) >= 0


@pytest.mark.parametrize("seed", SEEDS)
def test_backlog_drains_at_the_set_rate(seed: int) -> None:
    found = figures(LONG, seed)
    assert 0.8 * LONG.rate <= found.drain_rate <= 1.2 * LONG.rate
    assert found.parked <= MOST_PARKED, "queue scalers count hidden messages"


@pytest.mark.parametrize("seed", SEEDS)
def test_fresh_events_are_as_punctual_as_without_a_backlog(seed: int) -> None:
    found, alone = figures(LONG, seed), figures(Scenario(late_shards=0), seed)
    during = found.fresh_late(0.99, until=found.drained)
    assert during <= alone.fresh_late(0.99) + DELIVERY, "at most one delivery, with a slot to wait for"
    assert found.fresh_late(0.5) <= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_shards_spread_evenly_over_the_instances(seed: int) -> None:
    found = figures(LONG, seed)
    assert len(found.shards) == 4 and found.spread <= 1.35


def test_oldest_goes_first() -> None:
    found = figures(SHORT, 1)
    # What is late by less than two minutes when the outage ends is no backlog, and goes first of all.
    order = [each.due for each in found.backlog if each.due < found.ended - 3 * 60_000]
    # A shard holds events of one minute, and messages of a few seconds may be found in any order.
    ahead = max(due - earliest for due, earliest in zip(order, reversed(list(accumulate(reversed(order), min))), strict=True))
    assert len(order) > 5_000 and ahead <= 4 * 60_000


def test_backlog_that_drains_more_slowly_than_it_is_handed_out_waits_in_the_table() -> None:
    slow = Scenario(rate=100, late_shards=200, instances=1, one_by_one=True, fresh_per_second=1, fresh_for=30.0)
    # A sixth of the real bound, so that two hundred shards are enough to reach it.
    with patch.object(backlog, "BACKLOG_UNDER_WAY", 20_000):
        found = play(slow)
    assert Counter(each.id for each in found.arrivals) == found.expected
    assert found.drain_rate < slow.rate / 2
    # One tenant: half of what the set rate drains in that time, in shards of 20.
    most = slow.rate * 20 // 2 // SHARD_EVENTS
    assert most / 2 < found.most_queued <= most
    assert play(slow).most_queued > most * 1.5


def test_one_tenants_backlog_does_not_keep_the_others_waiting() -> None:
    found = figures(Scenario(tenants=2), 1)
    half = sorted(each.at for each in found.backlog)[len(found.backlog) // 2]
    done = Counter(each.tenant for each in found.backlog if each.at <= half)
    assert set(done) == {"t0", "t1"} and max(done.values()) <= 1.2 * min(done.values())


def test_without_a_backlogs_rules_fresh_events_wait_behind_it() -> None:
    """The result depends on the rules: as it was before, everything overdue is sent at once, ahead of what comes after."""
    with patch.object(rules, "BACKLOG_AFTER", NEVER):
        found = play(SHORT)
    assert found.fresh_late(0.99, until=found.drained) > 2_000
    assert found.drain_rate > 1.2 * SHORT.rate


def test_without_the_order_of_slots_fresh_events_wait_for_deliveries_of_the_backlog() -> None:
    with patch.object(attempt, "punctual_at", lambda props: NEVER):
        found = play(SHORT)
    assert found.fresh_late(0.99, until=found.drained) > 3 * figures(SHORT, 1).fresh_late(0.99, until=figures(SHORT, 1).drained)
