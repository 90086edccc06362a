"""Days and nights of the cookbook's examples pass in milliseconds."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import httpx
import pytest
from partner import Shipments
from prices import ZONES, Prices
from reconciliation import BERLIN, Reconciliation
from tocsin.testing import BlockingTocsin, Verdict


@pytest.fixture
def kit() -> Iterator[BlockingTocsin]:
    with BlockingTocsin() as kit:
        yield kit


def shipments(kit: BlockingTocsin, *answers: int) -> Shipments:
    """The shop, with a partner that gives these answers, the last one for ever."""
    left = list(answers)
    kit.channel("partner", "http://receiver.test/partner")
    shop = Shipments(kit.client, kit.secret)

    def deliver(request: httpx.Request) -> int:
        if request.url.path == "/partner":
            return left.pop(0) if len(left) > 1 else left[0]
        return shop.outcome(request.headers, request.content)

    kit.deliver_to(deliver)
    return shop


def test_partner_that_is_down_for_an_hour_gets_the_call_afterwards(kit: BlockingTocsin) -> None:
    shop = shipments(kit, 503, 503, 503, 503, 503, 503, 200)
    shop.announce("A1")
    kit.advance(minutes=10)
    assert shop.state == {"A1": "announced"}
    kit.advance(hours=3)
    assert shop.state == {"A1": "accepted"}


def test_shop_hears_that_the_partner_refuses_a_parcel(kit: BlockingTocsin) -> None:
    shop = shipments(kit, 422)
    shop.announce("A1")
    kit.advance(minutes=1)
    assert shop.state["A1"].startswith("refused: ")


BOOKED = {date(2027, 1, day): {17, 18} for day in range(10, 31)}


def test_each_night_reconciles_the_day_before_it_although_the_bank_is_late(kit: BlockingTocsin) -> None:
    paid: dict[date, set[int]] = {date(2027, 1, 15): {17}}
    nightly = Reconciliation(kit.client, kit.secret, BOOKED, paid)
    kit.deliver_to(lambda request: nightly.deliver(request.headers, request.content))
    nightly.start()
    kit.advance_to(datetime(2027, 1, 17, 3, tzinfo=BERLIN))
    assert nightly.unpaid == {date(2027, 1, 15): {18}}
    paid[date(2027, 1, 16)] = {17, 18}
    kit.advance(hours=4)
    assert nightly.unpaid == {date(2027, 1, 15): {18}, date(2027, 1, 16): set()} and not nightly.alarms


def test_nights_without_success_are_told(kit: BlockingTocsin) -> None:
    nightly = Reconciliation(kit.client, kit.secret, BOOKED, {})
    kit.deliver_to(lambda request: nightly.deliver(request.headers, request.content))
    nightly.start()
    kit.advance(hours=27)
    assert nightly.alarms == ["no reconciliation since 2027-01-15T08:00:00.000Z"]


SPRING = date(2027, 3, 28)
"""The night in which summer time begins in Europe."""


def test_price_changes_at_midnight_in_each_zone(kit: BlockingTocsin) -> None:
    shop = Prices(kit.client, kit.secret)
    kit.deliver_to(lambda request: shop.deliver(request.headers, request.content))
    shop.change("tea", 349, SPRING)
    shop.change("tea", 349, SPRING)  # again, as after a crash
    received = kit.advance_to(datetime(2027, 3, 30, tzinfo=UTC))
    eastern_first = sorted(ZONES, key=lambda zone: datetime(2027, 3, 28, tzinfo=ZoneInfo(zone)))
    assert [got.delivery.payload["zone"] for got in received] == eastern_first
    for got in received:
        local = got.delivery.fired.astimezone(ZoneInfo(got.delivery.payload["zone"]))
        assert (local.date(), local.time().isoformat()[:5]) == (SPRING, "00:00")


def test_withdrawn_change_stays_where_it_is_past_midnight(kit: BlockingTocsin) -> None:
    shop = Prices(kit.client, kit.secret)
    kit.deliver_to(lambda request: shop.deliver(request.headers, request.content))
    shop.change("tea", 349, SPRING)
    kit.advance_to(datetime(2027, 3, 27, 16, tzinfo=UTC))
    shop.withdraw("tea", SPRING)
    kit.advance(days=3)
    assert shop.current == {("tea", zone): 349 for zone in ZONES[:3]}


def test_receiver_that_fails_once_gets_the_price_again(kit: BlockingTocsin) -> None:
    shop = Prices(kit.client, kit.secret)
    kit.deliver_to(lambda request: shop.deliver(request.headers, request.content))
    shop.change("tea", 349, SPRING)
    kit.receiver.first(f"price:tea:{SPRING}:Asia-Tokyo", Verdict("retry", 503))
    kit.advance_to(datetime(2027, 3, 27, 15, tzinfo=UTC) + timedelta(hours=1))
    assert shop.current["tea", "Asia/Tokyo"] == 349
