"""Keys, ledger, durations and the clock: names and numbers there and back."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.core import clock, durations
from shared.core.clock import SettableClock
from shared.scheduler import keys
from shared.scheduler.shard import ledger
from shared.storage import limits
from shared.storage.ports import Row

tenants = st.from_regex(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True)
names = st.text("0123456789abcdefghijklmnopqrstuv", min_size=16, max_size=16)
moments = st.integers(durations.MIN_TIME, durations.MAX_TIME)
client_ids = st.from_regex(r"[A-Za-z0-9_:@~-]{1,200}", fullmatch=True)


# ---- keys


@given(tenants, names, st.integers(0, 999), moments)
def test_names_of_shards_and_rows_are_read_back(tenant: str, name: str, number: int, wake: int) -> None:
    shard, row = keys.shard_key(tenant, name), keys.event_row(number)
    assert (keys.shard_name(shard), keys.shard_tenant(shard)) == (name, tenant)
    assert keys.parse_server_id(tenant, keys.server_id(shard, row)) == keys.Address(shard, row)
    assert keys.index_shard(keys.index_key(shard, wake)) == shard
    assert keys.parse_address(keys.Address(shard, row).text) == keys.Address(shard, row)
    assert keys.index_partition(shard) == name[0] + shard[0] and keys.place_of(shard) == name[0]
    for key in (shard, row, keys.index_key(shard, wake)):
        limits.check_key("key", key)
    assert keys.FIRST_EVENT <= row < keys.END_EVENTS < keys.GATE


@given(tenants, tenants, names, st.integers(0, 999))
def test_id_of_one_tenant_never_leads_to_anothers_shard(one: str, other: str, name: str, number: int) -> None:
    event_id = keys.server_id(keys.shard_key(one, name), keys.event_row(number))
    found = keys.parse_server_id(other, event_id)
    assert found is not None and keys.shard_tenant(found.shard) == other
    assert (found.shard == keys.shard_key(one, name)) == (one == other)


@given(client_ids)
def test_id_of_a_client_is_never_one_of_the_services(event_id: str) -> None:
    assert keys.parse_server_id("demo", event_id) is None
    limits.check_key("key", keys.id_row_key(event_id))
    limits.check_key("key", keys.id_partition("demo", event_id))


@pytest.mark.parametrize(
    "text",
    ["", ".", "a.000", "0123456789abcdef.00", "0123456789abcdef.0000", "0123456789ABCDEF.000", "0123456789abcdef.\u0660\u0660\u0660"],
)
def test_what_is_no_id_of_the_service_is_refused(text: str) -> None:
    assert keys.parse_server_id("demo", text) is None


@given(tenants, tenants, client_ids, client_ids)
def test_ids_of_two_tenants_never_share_a_row(one: str, other: str, first: str, second: str) -> None:
    if (one, first) != (other, second):
        assert (keys.id_partition(one, first), keys.id_row_key(first)) != (keys.id_partition(other, second), keys.id_row_key(second))


@given(moments, moments)
def test_minutes_sort_as_time_does(one: int, other: int) -> None:
    one, other = max(one, 0), max(other, 0)
    assert (keys.minute_text(one) < keys.minute_text(other)) == (one // 60_000 < other // 60_000)
    assert keys.minute_start(one) <= one < keys.minute_start(one) + keys.MINUTE


def test_time_before_1970_is_filed_under_its_first_minute() -> None:
    assert keys.minute_text(-1) == keys.minute_text(durations.MIN_TIME) == "197001010000"


@given(st.lists(st.text(max_size=8), min_size=1, max_size=3), st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_derived_names_depend_on_every_part(one: list[str], other: list[str]) -> None:
    if any("\0" in part for part in [*one, *other]):
        return
    assert (keys.derived_name(*one) == keys.derived_name(*other)) == (one == other)
    assert keys.parse_server_id("demo", f"{keys.derived_name(*one)}.000") is not None


# ---- the ledger

histograms = st.dictionaries(st.integers(0, len(ledger.BOUNDS)), st.integers(1, 1000), min_size=1)


@given(st.lists(st.integers(0, 10**8), min_size=1), st.floats(0.01, 1.0))
def test_quantile_is_the_bound_of_the_bucket_it_lies_in(late: list[int], share: float) -> None:
    histogram: ledger.Histogram = {}
    for each in late:
        ledger.add(histogram, {ledger.bucket_of(each): 1})
    exact = sorted(late)[max(0, -(-int(share * len(late) * 1_000_000) // 1_000_000) - 1)]
    found = ledger.quantile(histogram, share)
    assert found is not None
    if exact <= ledger.BOUNDS[-1]:
        assert found >= exact and (exact <= 1 or found <= max(1, 2.5 * exact))
    assert ledger.quantile({}, share) is None


@pytest.mark.parametrize(("late", "bucket"), [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (50_000_000, 23), (50_000_001, 24)])
def test_buckets_hold_what_is_not_above_their_bound(late: int, bucket: int) -> None:
    assert ledger.bucket_of(late) == bucket


figures = st.builds(ledger.DeliveryFigures, histograms | st.just({}), st.integers(0, 10**9), st.integers(0, 10**12), st.integers(0, 1000))


@given(st.dictionaries(tenants, figures, max_size=ledger.MOST_CHANNELS))
def test_figures_are_packed_and_read_back(channels: dict[str, ledger.DeliveryFigures]) -> None:
    assert ledger.unpack(ledger.pack(channels)) == channels


@given(st.integers(1, 5), st.lists(figures, min_size=1, max_size=4))
def test_channels_beyond_60_are_reported_together_and_none_is_lost(more: int, given: list[ledger.DeliveryFigures]) -> None:
    channels = {f"c{number}": given[number % len(given)] for number in range(ledger.MOST_CHANNELS + more)}
    found = ledger.keep_most_used(channels)
    assert len(found) == ledger.MOST_CHANNELS + 1 and ledger.REST in found
    for figure in ("delivered", "total", "dead"):
        assert sum(getattr(each, figure) for each in found.values()) == sum(getattr(each, figure) for each in channels.values())
    least = min(channels[name].delivered for name in found if name != ledger.REST)
    assert all(channels[name].delivered <= least for name in channels.keys() - found.keys())


def test_full_figures_of_60_channels_fit_one_property() -> None:
    full = ledger.DeliveryFigures({number: 10**11 for number in range(len(ledger.BOUNDS) + 1)}, 10**10, 10**15, 10**11)
    limits.check_value("late", ledger.pack(ledger.keep_most_used({f"{number:040}": full for number in range(70)})))


def test_ledger_counts_delivered_and_dead_events_by_channel() -> None:
    rows = [
        Row("p", "e000", {"state": "delivered", "channel": "a", "late": 3}, "", 0, 0),
        Row("p", "e001", {"state": "delivered", "channel": "a", "late": 70}, "", 0, 0),
        Row("p", "e002", {"state": "dead", "channel": "a"}, "", 0, 0),
        Row("p", "e003", {"state": "delivered", "channel": "b", "late": 0}, "", 0, 0),
        Row("p", "e004", {"state": "lapsed", "channel": "c"}, "", 0, 0),
    ]
    assert ledger.figures_per_channel(rows) == {
        "a": ledger.DeliveryFigures({2: 1, 6: 1}, 70, 73, 1),
        "b": ledger.DeliveryFigures({0: 1}, 0, 0, 0),
    }
    assert ledger.entry_for(rows, 1_000)["keep"] == 1_000 + 30 * 86_400_000
    assert ledger.entry_for(rows[:2], 1_000)["keep"] == 1_000 + 7 * 86_400_000
    assert ledger.entry_for([], 1_000)["late"] == "{}"


# ---- durations and times


@given(st.integers(0, durations.MAX_DURATION))
def test_durations_are_written_and_read_back(millis: int) -> None:
    text = durations.format_duration(millis)
    assert durations.parse_duration(text) == millis
    assert re.search(durations.DURATION_PATTERN, text)


@given(st.from_regex(durations.DURATION_PATTERN, fullmatch=True))
def test_documented_pattern_is_what_is_read(text: str) -> None:
    try:
        assert 0 <= durations.parse_duration(text.removesuffix("\n")) <= durations.MAX_DURATION
    except ValueError as error:
        assert "longer" in str(error)


@pytest.mark.parametrize(
    ("text", "millis"),
    [("PT0S", 0), ("PT0.001S", 1), ("PT1,5S", 1_500), ("P1W", 604_800_000), ("P1DT1H1M1.1S", 90_061_100), ("PT90M", 5_400_000), ("P0D", 0)],
)
def test_durations_of_every_form(text: str, millis: int) -> None:
    assert durations.parse_duration(text) == millis


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1", "1S", "PT1", "P1DT", "P1Y", "P1M", "-PT1S", "PT-1S"),
        *("PT1.5M", "PT1.1234S", "PT1S ", "PT1S\n", "pt1s", "PT\u0665S", "P3661D"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        durations.parse_duration(text)


@given(moments)
def test_times_are_written_and_read_back(millis: int) -> None:
    text = clock.to_text(millis)
    assert len(text) == 24 and durations.parse_time(text) == millis


@given(st.datetimes(), st.integers(-1439, 1439), st.integers(0, 999))
@example(datetime.min, 1439, 0)
@example(datetime.max, -1439, 999)
def test_time_is_read_in_every_offset_and_never_as_an_earlier_one(moment: datetime, offset: int, nanos: int) -> None:
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    text = moment.isoformat(timespec="microseconds") + f"{nanos:03d}" + aware.isoformat()[-6:]
    exact = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000 + nanos
    try:
        found = durations.parse_time(text)
    except ValueError:
        assert not durations.MIN_TIME * 10**6 <= exact <= durations.MAX_TIME * 10**6
        return
    assert found * 10**6 >= exact > (found - 1) * 10**6


@given(st.datetimes(timezones=st.just(UTC)))
def test_milliseconds_are_rounded_up(moment: datetime) -> None:
    millis = clock.to_millis(moment)
    if millis <= durations.MAX_TIME:
        assert timedelta(0) <= clock.to_datetime(millis) - moment < timedelta(milliseconds=1)


# ---- the settable clock


async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    settable = SettableClock(1_000)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await settable.sleep(seconds)
        woken.append((name, settable.now()))

    tasks = [asyncio.ensure_future(sleeper(name, seconds)) for name, seconds in (("late", 2.0), ("soon", 0.5), ("now", 0), ("then", 1.5))]
    await settable.advance(1.5)
    assert woken == [("now", 1_000), ("soon", 1_500), ("then", 2_500)]
    assert settable.next_wake() == pytest.approx(0.5)
    await settable.advance(10)
    assert woken[-1] == ("late", 3_000) and settable.now() == 12_500 and settable.next_wake() is None
    await asyncio.gather(*tasks)


async def test_sleeper_that_is_cancelled_is_forgotten() -> None:
    settable = SettableClock()
    task = asyncio.ensure_future(settable.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert settable.next_wake() is None


@given(st.lists(st.integers(1, 10_000), max_size=200))
async def test_wall_time_and_monotonic_time_go_together(steps: list[int]) -> None:
    settable = SettableClock(0)
    for step in steps:
        await settable.advance(step / 1000, settle=0)
    assert abs(settable.now() - sum(steps)) <= 1
    assert settable.monotonic() * 1000 == pytest.approx(sum(steps))
