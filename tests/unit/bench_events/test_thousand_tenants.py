"""The load of 1,000 tenants: its rate, and the recorded requests that a delivery needs."""

from __future__ import annotations

from typing import Any

import pytest

from bench.events.sparse_tenants import Streamed
from bench.events.thousand_tenants import (
    Comparison,
    Recorded,
    claims_of,
    delivery,
    figures,
    latest_times,
    paths_to,
    rate_for,
    storage_time,
    tenant_of,
)
from bench.tools.receiver import headers_of
from bench.tools.recorder import Request

SHARD, OTHER = "0d43prfph628m8fb", "00i1g05rn3jfm74q"
ROW = '"RowKey":"e{row:03}","state":"firing"'


def request(text: str, began: float, took: float = 0.01) -> Request:
    return Request(1, text.encode(), began, began + took, 200)


def shard_path(shard: str, tenant: str, began: float) -> list[Request]:
    """The requests of a shard with one event, as the app makes them: store, take, load and claim, settle."""
    key = f"80-{shard}-{tenant}"
    gate = f"/devstoreaccount1/TocsinEvents(PartitionKey='{key}',RowKey='gate') HTTP/1.1"
    return [
        request(f'POST /devstoreaccount1/TocsinShards HTTP/1.1\r\n\r\n{{"RowKey":"202611291903:{tenant}:{shard}"}}', began),
        request(f'POST /$batch HTTP/1.1\r\n\r\n{{"PartitionKey":"{key}","RowKey":"e000","state":"scheduled"}}', began + 0.02),
        request(f"GET {gate}", began + 4.0),
        request(f"PATCH {gate}", began + 4.02),
        request(f"GET /TocsinEvents()?$filter=PartitionKey%20eq%20%27{key}%27 HTTP/1.1", began + 4.04),
        request(f'POST /$batch HTTP/1.1\r\n\r\n{{"PartitionKey":"{key}",{ROW.format(row=0)}}}', began + 5.0),
        request(f'POST /$batch HTTP/1.1\r\n\r\n{{"PartitionKey":"{key}","RowKey":"e000","state":"delivered"}}', began + 8.0),
    ]


REQUESTS = sorted([*shard_path(SHARD, "t0387", 1.0), *shard_path(OTHER, "t0064", 1.5)], key=lambda each: each.began)
EVENTS = {f"{SHARD}.000": 8_000, f"{OTHER}.000": 8_500}
NUMBERS = {shard: [number for number, each in enumerate(REQUESTS) if shard in each.raw.decode()] for shard in (SHARD, OTHER)}


@pytest.mark.parametrize(("thread", "rate"), [(20.0, 40), (16.0, 50), (8.0, 100), (1.0, 100), (2_000.0, 1)])
def test_rate_fills_four_fifths_of_the_thread_and_is_a_hundred_at_most(thread: float, rate: int) -> None:
    assert rate_for(thread) == rate


@pytest.mark.parametrize(
    ("raw", "tenant"),
    [
        (b"GET /TocsinTenants(PartitionKey='t:t0387',RowKey='channel:default')", "t0387"),
        (b"GET /TocsinLedger()?$filter=PartitionKey%20eq%20%27t0064%27", "t0064"),
        (b'{"PartitionKey":"80-0d43prfph628m8fb-t0387"}', "t0387"),
        (b"GET /tocsin-shards/messages?numofmessages=16", ""),
        (b"at0387 t03871", ""),
    ],
)
def test_tenant_of_a_request_is_found_in_any_form(raw: bytes, tenant: str) -> None:
    assert tenant_of(raw) == tenant


def test_last_request_that_a_delivery_needs_is_its_claim() -> None:
    assert claims_of(REQUESTS, [*EVENTS, "0000000000000000.000"]) == {f"{shard}.000": numbers[5] for shard, numbers in NUMBERS.items()}


def test_claim_of_several_rows_claims_each_of_their_events_once() -> None:
    text = f"80-{SHARD}-t0387 {ROW.format(row=0)} {ROW.format(row=7)}"
    again = request(text, 2.0)
    assert claims_of([request(text, 1.0), again], [f"{SHARD}.000", f"{SHARD}.007", f"{SHARD}.008"]) == {
        f"{SHARD}.000": 0,
        f"{SHARD}.007": 0,
    }


def test_delivery_needs_the_requests_of_its_shard_up_to_its_claim() -> None:
    paths = paths_to(claims_of(REQUESTS, EVENTS), REQUESTS)
    assert paths == {f"{shard}.000": numbers[:6] for shard, numbers in NUMBERS.items()}


def test_later_claim_of_a_shard_does_not_need_an_earlier_one() -> None:
    path = shard_path(SHARD, "t0387", 1.0)
    claim = request(f"80-{SHARD}-t0387 {ROW.format(row=1)}", 7.0)
    paths = paths_to({f"{SHARD}.000": 5, f"{SHARD}.001": 7}, [*path, claim])
    assert paths == {f"{SHARD}.000": [0, 1, 2, 3, 4, 5], f"{SHARD}.001": [0, 1, 2, 3, 4, 7]}


def test_requests_from_the_last_read_of_the_gate_are_sent_when_the_owner_starts() -> None:
    paths = paths_to(claims_of(REQUESTS, EVENTS), REQUESTS)
    latest = latest_times(paths, REQUESTS, {f"{SHARD}.000": 4.5, f"{OTHER}.000": 6.0})
    assert latest == dict.fromkeys(NUMBERS[SHARD][2:6], 4.5) | dict.fromkeys(NUMBERS[OTHER][2:6], 6.0)


def test_owner_of_several_events_starts_in_time_for_the_first() -> None:
    assert latest_times({"a": [1, 2, 3], "b": [2, 3]}, shard_path(SHARD, "t0387", 1.0), {"a": 7.0, "b": 6.0}) == {2: 6.0, 3: 6.0}


def test_storage_time_includes_the_pauses_of_the_app_in_taking_and_loading() -> None:
    path = shard_path(SHARD, "t0387", 1.0)
    # Six requests of 10 ms, and two pauses of 10 ms: before the take and the load, not before the read of the gate and the claim.
    assert storage_time([0, 1, 2, 3, 4, 5], path) == pytest.approx(0.08)


def test_delivery_is_counted_by_the_receiver() -> None:
    head, _, body = delivery(f"{SHARD}.000", 1_795_978_981_580).partition(b"\r\n\r\n")
    found = headers_of(head)
    assert (found["ce-id"], found["ce-tocsindue"]) == (f"{SHARD}.000", "2026-11-29T19:03:01.580Z")
    assert int(found["content-length"]) == len(body) == 500


def test_figures_compare_the_storage_time_before_a_delivery() -> None:
    stats: dict[str, Any] = {"p50": 1.0, "p90": 2.0, "p99": 40.0, "max": 50.0, "early": 0, "count": 4, "distinct": 4}
    ours = Recorded(Streamed(stats, 4, 2.0, 14.0, 16.0), 50, ([], []), REQUESTS, 1.0, EVENTS, (1, 2))
    late, bare, needed, full = figures(ours, Comparison(stats | {"p99": 20.0}, 15.0, 0.98, 100.0, 120.0))
    assert (late.value, late.reached, late.details["azurite_ms"]) == (40.0, True, 16.0)
    assert "50 single POSTs a second" in late.name
    assert (bare.value, bare.reached) == (20.0, None)
    assert "3.5 requests and 15.0 ms" in bare.note
    assert (needed.value, needed.reached) == (1.2, True)
    assert full.value == 160.0


def test_busy_share_is_that_of_the_rate_at_which_events_come() -> None:
    assert Streamed({}, 400, 10.0, 1.0, 20.0).busy == pytest.approx(0.8)
