"""The two forms of an event, and how header values are coded."""

from __future__ import annotations

import json
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import to_datetime, to_text
from shared.delivery.channels.cloudevents import binary_headers, header_value, structured

from .conftest import http_target, make_delivery

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_binary_headers_carry_every_attribute() -> None:
    headers = binary_headers(http_target("https://example.com/"), make_delivery(attempt=3, traceparent=TRACE))
    assert headers == {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-type": "tocsin.event.due",
        "ce-source": "/tenants/demo/channels/default",
        "ce-id": "ev-1",
        "ce-time": "2027-01-15T08:00:00.210Z",
        "ce-tocsindue": "2027-01-15T08:00:00.210Z",
        "ce-tocsinfired": "2027-01-15T08:00:00.250Z",
        "ce-tocsinlatems": "40",
        "ce-tocsinattempt": "3",
        "traceparent": TRACE,
    }


def test_without_a_trace_there_is_no_traceparent() -> None:
    assert "traceparent" not in binary_headers(http_target("https://example.com/"), make_delivery())


def test_the_json_form_keeps_the_payload_byte_for_byte() -> None:
    body = b'{"big": 123456789012345678901234567890, "f": 1.0,  "a": [1,2]}'
    raw = structured(http_target("https://example.com/"), make_delivery(body=body, id="a~b@c", traceparent=TRACE), {"tocsinuptimems": 7})
    assert raw.endswith(b'"data":' + body + b"}")
    event = json.loads(raw)
    assert event.pop("data") == json.loads(body)
    assert event == {
        "specversion": "1.0",
        "id": "a~b@c",
        "source": "/tenants/demo/channels/default",
        "type": "tocsin.event.due",
        "time": "2027-01-15T08:00:00.210Z",
        "datacontenttype": "application/json",
        "tocsindue": "2027-01-15T08:00:00.210Z",
        "tocsinfired": "2027-01-15T08:00:00.250Z",
        "tocsinlatems": 40,
        "tocsinattempt": 1,
        "traceparent": TRACE,
        "tocsinuptimems": 7,
    }


def test_an_event_without_payload_has_null_data() -> None:
    assert json.loads(structured(http_target("https://example.com/"), make_delivery(body=b""), {}))["data"] is None


def test_header_values_are_coded_as_the_binding_says() -> None:
    assert header_value("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"
    assert header_value('a"b%c\r\nx: y') == "a%22b%25c%0D%0Ax:%20y"
    assert header_value("job:20260101T000000Z@~_-") == "job:20260101T000000Z@~_-"


@given(st.text(st.characters()))
def test_coded_header_values_are_printable_and_decode_to_the_text(text: str) -> None:
    coded = header_value(text)
    assert all("!" <= char <= "~" and char != '"' for char in coded)
    assert unquote(coded) == text.encode("utf-8", "replace").decode()


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_the_text_of_a_time_is_that_of_the_standard_library(millis: int) -> None:
    assert to_text(millis) == to_datetime(millis).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
