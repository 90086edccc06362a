"""`verify`: what a receiver believes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import azure.functions as func
import httpx
import pytest
from standardwebhooks import Webhook

import shared as tocsin
from shared.client.receiving import CLOCK
from shared.core import signing
from shared.core.clock import SettableClock
from shared.delivery.channels import cloudevents
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target

NOW = 1_800_000_000_000
SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
OTHER = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI="
TARGET = Target("shop", "orders", HttpChannel(type="http", url="https://shop.example/"))
BODY = b'{"order": 17,  "sum": 1.10, "big": 123456789012345678901234567890}'


@pytest.fixture(autouse=True)
def clock() -> Iterator[SettableClock]:
    """The receiver's clock stands at the instant of the delivery."""
    clock = SettableClock(NOW)
    token = CLOCK.set(clock)
    yield clock
    CLOCK.reset(token)


def signed(body: bytes = BODY, secret: str = SECRET, **change: str | None) -> dict[str, str]:
    delivery = OutgoingDelivery("order-17:time-out", NOW - 250, NOW, 2, body)
    headers: dict[str, str] = cloudevents.binary_headers(TARGET, delivery)
    headers |= {"webhook-id": delivery.id, "webhook-timestamp": str(NOW // 1000)}
    headers["webhook-signature"] = signing.sign(delivery.id, NOW // 1000, body, [secret])
    for name, value in change.items():
        if value is None:
            del headers[name.replace("_", "-")]
        else:
            headers[name.replace("_", "-")] = value
    return headers


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(tocsin.BadDelivery, match=words) as caught:
        yield
    assert SECRET not in str(caught.value) and caught.value.__cause__ is None


def test_delivery_is_read() -> None:
    assert tocsin.verify(signed(), BODY, SECRET) == tocsin.Delivery(
        id="order-17:time-out",
        due=datetime(2027, 1, 15, 7, 59, 59, 750_000, tzinfo=UTC),
        fired=datetime(2027, 1, 15, 8, 0, tzinfo=UTC),
        attempt=2,
        late=timedelta(milliseconds=250),
        tenant="shop",
        channel="orders",
        payload={"order": 17, "sum": 1.10, "big": 123456789012345678901234567890},
        body=BODY,
    )


def test_request_without_a_body_has_no_payload_and_one_of_another_type_has_its_bytes() -> None:
    for body, content_type, payload in (
        (b"", None, None),
        (b"<a/>", "Text/XML; charset=utf-8", b"<a/>"),
        (b"1", "application/json;a=b", 1),
    ):
        found = tocsin.verify(signed(body, content_type=content_type), body, SECRET)
        assert (found.payload, found.body, found.content_type) == (payload, body, content_type or "application/json")
    with refused("signature"):
        tocsin.verify(signed(b"1"), b"", SECRET)


def test_it_agrees_with_the_public_verifier() -> None:
    headers = signed() | {"webhook-timestamp": str(round(datetime.now(UTC).timestamp()))}
    headers["webhook-signature"] = signing.sign("order-17:time-out", int(headers["webhook-timestamp"]), BODY, [SECRET])
    assert Webhook(SECRET).verify(BODY, headers)
    CLOCK.set(SettableClock(int(headers["webhook-timestamp"]) * 1000))
    assert tocsin.verify(headers, BODY, SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        {name.title(): value for name, value in signed().items()},
        {name.upper(): value for name, value in signed().items()},
        httpx.Headers(signed()),
        func.HttpRequest("POST", "http://x/", headers=signed(), body=BODY).headers,
    ],
    ids=["title", "upper", "httpx", "functions"],
)
def test_headers_of_every_kind_of_mapping_are_found(headers: Any) -> None:
    assert tocsin.verify(headers, BODY, SECRET).attempt == 2


def test_any_of_several_secrets_will_do() -> None:
    assert tocsin.verify(signed(), BODY, [OTHER, SECRET]) and tocsin.verify(signed(secret=OTHER), BODY, (OTHER, SECRET))


def test_other_buffers_than_bytes_are_taken() -> None:
    assert tocsin.verify(signed(), bytearray(BODY), SECRET).body == BODY  # type: ignore[arg-type]


def test_wrong_secret_is_refused() -> None:
    with refused("does not match"):
        tocsin.verify(signed(), BODY, OTHER)


@pytest.mark.parametrize("at", range(len(BODY)))
def test_any_other_body_is_refused(at: int) -> None:
    with refused("does not match"):
        tocsin.verify(signed(), BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :], SECRET)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_unsigned_request_is_refused_and_says_what_is_missing(name: str) -> None:
    with refused(f"lacks {name}"):
        tocsin.verify(signed(**{name: None}), BODY, SECRET)


@pytest.mark.parametrize("seconds", [-301, 301])
def test_old_and_future_requests_are_refused(clock: SettableClock, seconds: int) -> None:
    CLOCK.set(SettableClock(NOW + seconds * 1000))
    with refused("does not match"):
        tocsin.verify(signed(), BODY, SECRET)
    assert tocsin.verify(signed(), BODY, SECRET, tolerance=302)


def test_signed_id_counts_and_no_other() -> None:
    with refused("ce- header"):
        tocsin.verify(signed(ce_id="order-18"), BODY, SECRET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ce-source", "/tenants/shop"),
        ("ce-source", "/tenants/shop/channels/a/b"),
        ("ce-tocsindue", "yesterday"),
        ("ce-tocsinattempt", "x"),
        ("ce-tocsinlatems", "9" * 30),
        ("ce-tocsinfired", None),
    ],
)
def test_signed_request_that_is_no_delivery_is_refused(name: str, value: str | None) -> None:
    with refused("not a Tocsin delivery"):
        tocsin.verify(signed(**{name: value}), BODY, SECRET)


def test_body_that_is_not_json_is_refused() -> None:
    with refused("not JSON"):
        tocsin.verify(signed(body=b"{"), b"{", SECRET)


def test_mistakes_of_the_receivers_own_are_no_bad_deliveries() -> None:
    with pytest.raises(TypeError, match="bytes as they arrived"):
        tocsin.verify(signed(), BODY.decode(), SECRET)  # type: ignore[arg-type]
    for none in ([], None):
        with pytest.raises(ValueError, match=r"needs the channel's secret, whsec_\.\.\., and got none"):
            tocsin.verify(signed(), BODY, none)  # type: ignore[arg-type]
    for other, kind in ((SECRET.encode(), "bytes"), ([SECRET, None], "NoneType")):
        with pytest.raises(TypeError, match=rf"secret as text, whsec_\.\.\., and got {kind}"):
            tocsin.verify(signed(), BODY, other)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not a webhook secret") as wrong:
        tocsin.verify(signed(), BODY, "whsec_?key")
    assert "?key" not in str(wrong.value)


def test_body_stays_out_of_the_representation() -> None:
    assert "body" not in repr(tocsin.verify(signed(), BODY, SECRET))
