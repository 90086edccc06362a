"""The shop's tests: a month passes in milliseconds."""

from collections.abc import Iterator

import pytest
from orders import Orders
from tocsin.testing import BlockingTocsin, Verdict


@pytest.fixture
def kit() -> Iterator[BlockingTocsin]:
    with BlockingTocsin() as kit:
        yield kit


@pytest.fixture
def orders(kit: BlockingTocsin) -> Orders:
    orders = Orders(kit.client, kit.secret)
    kit.deliver_to(lambda request: orders.unpaid(request.headers, request.content))
    return orders


def test_order_is_cancelled_after_thirty_days(kit: BlockingTocsin, orders: Orders) -> None:
    orders.place(17)
    kit.advance(days=30, milliseconds=-10)
    assert orders.state[17] == "open"
    kit.advance(milliseconds=10)
    assert orders.state[17] == "cancelled"


def test_paid_order_is_left_alone(kit: BlockingTocsin, orders: Orders) -> None:
    orders.place(17)
    kit.advance(days=29)
    orders.pay(17)
    assert kit.advance(days=30) == [] and orders.state[17] == "paid"


def test_shop_that_is_down_when_the_month_ends_is_told_later(kit: BlockingTocsin, orders: Orders) -> None:
    orders.place(17)
    kit.receiver.first("order-17:unpaid", Verdict("retry", 503), Verdict("retry", 503))
    received = kit.advance(days=31)
    assert [got.verdict.status for got in received] == [503, 503, 204]
    assert orders.state[17] == "cancelled"


def test_stranger_is_not_believed(orders: Orders) -> None:
    orders.place(17)
    assert orders.unpaid({"webhook-id": "x", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}, b'{"order": 17}') == 401
    assert orders.state[17] == "open"
