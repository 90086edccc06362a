"""The line along which a backlog drains: pure, whatever the backlog is like."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from shared.core.clock import Millis
from shared.scheduler import timings
from shared.scheduler.sweeps.backlog import BacklogDrain, counted_events, in_turn
from shared.scheduler.timings import BACKLOG_HORIZON, BACKLOG_LEAST_EVENTS, BACKLOG_TENANT_SHARE, BACKLOG_UNDER_WAY
from shared.storage.ports import Props, Row

NOW: Millis = 1_800_000_000_000
RATES = st.integers(50, 20_000)
TENANTS = st.sampled_from(["a", "b", "c"])
WORK = st.lists(st.tuples(TENANTS, st.integers(0, 990)), max_size=300)


def handed_out(tenant: str, at: Millis, events: int, **more: int) -> Props:
    return {"state": "sent", "tenant": tenant, "wake": NOW - 10**7, "resent": at, "events": counted_events(events), **more}


def give(pace: BacklogDrain, work: list[tuple[str, int]]) -> list[tuple[str, int, Millis]]:
    return [(tenant, events, pace.place(tenant, events)) for tenant, events in work if pace.admits(tenant)]


@given(RATES, WORK)
def test_places_follow_each_other_no_faster_than_the_rate_and_none_is_parked_for_long(rate: int, work: list[tuple[str, int]]) -> None:
    given_out = give(BacklogDrain([], NOW, rate), work)
    last: float = NOW
    for _, events, at in given_out:
        assert abs(at - last - counted_events(events) * 1000 / rate) <= 1, "each place is as long as its events take"
        last = at
    longest = 990 * 1000 / rate
    assert all(NOW <= at <= NOW + BACKLOG_HORIZON + longest + len(given_out) for *_, at in given_out)
    assert NOW + BACKLOG_HORIZON + longest <= NOW + 60_000, "a minute at most: queue scalers count hidden messages"


@given(RATES, WORK, st.integers(1, 59_000), st.booleans())
def test_next_sweep_goes_on_where_the_line_ends_whatever_has_finished_since(
    rate: int, work: list[tuple[str, int]], later: int, finished: bool
) -> None:
    first = give(BacklogDrain([], NOW, rate), work)
    now = NOW + later
    # A shard may finish once its place has come; its row is gone then.
    rows = [handed_out(tenant, at, events) for tenant, events, at in first if not (finished and at <= now)]
    pace = BacklogDrain(rows, now, rate)
    if pace.admits("new"):
        end = max([at for *_, at in first], default=now)
        assert pace.place("new", 1) >= max(now, end) + BACKLOG_LEAST_EVENTS * 1000 // rate - 1


@given(RATES, WORK, st.lists(st.tuples(TENANTS, st.integers(1, 990), st.integers(1, 10**6)), max_size=200))
@example(50, [("a", 10), ("b", 10)], [("a", 990, 1)] * 4)
def test_no_more_is_under_way_than_two_minutes_worth_and_half_of_it_for_one_tenant(
    rate: int, work: list[tuple[str, int]], unfinished: list[tuple[str, int, int]]
) -> None:
    room = rate * BACKLOG_UNDER_WAY // 1000
    under_way = Counter[str]()
    for tenant, events, _ in unfinished:
        under_way[tenant] += counted_events(events)
    before = Counter(under_way)
    pace = BacklogDrain([handed_out(tenant, NOW - ago, events) for tenant, events, ago in unfinished], NOW, rate)
    for tenant, events, _ in give(pace, work):
        assert under_way.total() < room and under_way[tenant] < room * BACKLOG_TENANT_SHARE
        under_way[tenant] += counted_events(events)
    assert all(under_way[tenant] == before[tenant] for tenant in before if before[tenant] >= room * BACKLOG_TENANT_SHARE)


def test_tenant_whose_shards_do_not_finish_does_not_hold_up_another() -> None:
    stuck = [handed_out("slow", NOW - 60_000, 990) for _ in range(200)]
    pace = BacklogDrain(stuck, NOW, 2_000)
    assert not pace.admits("slow") and pace.admits("other") and not pace.full


def test_shards_without_a_successful_owner_do_not_count_as_under_way() -> None:
    rows = [handed_out("a", NOW - 60_000, 990, rounds=timings.STUCK_ROUNDS) for _ in range(1_000)]
    assert BacklogDrain(rows, NOW, 2_000).admits("a")


def test_shard_that_was_sent_in_time_or_rests_again_takes_no_place() -> None:
    punctual: Props = {"state": "sent", "tenant": "a", "wake": NOW - 10**6, "resent": NOW + 10**9}
    resting = {**handed_out("a", NOW + 10**9, 10**6), "state": "resting"}
    assert BacklogDrain([punctual, resting], NOW, 50).place("a", 50) == NOW + 1_000


@given(st.lists(st.tuples(TENANTS, st.integers(0, 50)), max_size=60))
def test_oldest_goes_first_in_each_tenant_and_tenants_take_turns(found: list[tuple[str, int]]) -> None:
    rows = [
        Row("00", f"{minute:012d}:{tenant}:{number}", {"tenant": tenant, "wake": NOW + minute}, "", 0, 0)
        for number, (tenant, minute) in enumerate(found)
    ]
    order = in_turn(iter(rows))
    assert sorted(row.rk for row in order) == sorted(row.rk for row in rows)
    for tenant in "abc":
        wakes = [row.props["wake"] for row in order if row.props["tenant"] == tenant]
        assert wakes == sorted(wakes)
    left = Counter(tenant for tenant, _ in found)
    served = Counter[str]()
    for row in order:
        tenant = str(row.props["tenant"])
        assert all(served[tenant] <= served[other] or served[other] == left[other] for other in left), "turn by turn"
        served[tenant] += 1
