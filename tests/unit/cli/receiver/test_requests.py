"""The requests of a run are those of the service's sender, byte by byte, and the others differ as they should."""

from __future__ import annotations

import asyncio
import json

import pytest

from shared.cli.receiver import requests
from shared.cli.receiver.requests import NAME, STRANGER, UNUSUAL, Requests, Wire, token_of, wire_of
from shared.client.receiving import verify
from shared.core import signing
from shared.core.settings import Settings
from shared.delivery.channels.event_target import EventTarget
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.ports import OutgoingDelivery, Target
from shared.delivery.egress_guard import Egress

from .receivers import SECRET

EGRESS = Egress(["127.0.0.0/8", "localhost"])
NOW = 1_800_000_000_250
PAYLOAD = b'{"order":17,"name":"caf\xc3\xa9"}'


def made(url: str = "http://127.0.0.1:8000/hook?x=1", method: str = "POST") -> Requests:
    return Requests(url, [SECRET], EGRESS, method=method, headers={"X-Key": "k1"}, timeout=15.0, seed="s")


def headers_of(wire: Wire) -> dict[str, str]:
    lines = wire.head.decode().split("\r\n")[1:]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines if line)}


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_delivery_is_what_the_service_sends_byte_by_byte(method: str) -> None:
    async def sent() -> tuple[bytes, str]:
        got = bytearray()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            got.extend(head + await reader.readexactly(len(PAYLOAD)))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?x=1"
        it = made(url, method)
        own = EventTarget.model_validate({"method": method}).stored() if method != "POST" else None
        delivery = OutgoingDelivery("check:s:late", NOW, NOW, 3, PAYLOAD, event_target=own)
        sender = HttpSender(Settings(storage="UseDevelopmentStorage=true", egress_allow="127.0.0.0/8"))
        verdict = await sender.send(Target(NAME, NAME, it.spec, (SECRET,)), delivery)
        await sender.close()
        server.close()
        assert verdict.outcome == "delivered"
        return bytes(got), url

    expected, url = asyncio.run(sent())
    wire = wire_of(made(url, method).post("late", PAYLOAD, NOW, attempt=3))
    assert wire.head + wire.body == expected
    assert b"".join(wire.pieces(6)) == expected


def test_token_is_the_same_in_each_run_and_differs_by_host_port_and_secret() -> None:
    token = token_of(SECRET, "https://app.example/hook")
    assert token == token_of(SECRET, "https://app.example:443/other?x=1")
    others = [
        token_of(SECRET, "https://other.example/hook"),
        token_of(SECRET, "https://app.example:8443/hook"),
        token_of(STRANGER, "https://app.example/hook"),
    ]
    assert len({token, *others}) == 4 and SECRET[6:] not in token


def test_changes_of_the_body_keep_the_meaning_or_change_it_as_they_say() -> None:
    payload = requests.compact(b'{ "order": 17,\n "name": "caf\xc3\xa9" }')
    assert payload == PAYLOAD
    assert requests.spaced(payload) != payload and json.loads(requests.spaced(payload)) == json.loads(payload)
    assert b"\\u00e9" in requests.spaced(payload)
    assert json.loads(requests.padded_to(payload, 1000)) == json.loads(payload) and len(requests.padded_to(payload, 1000)) == 1000
    assert json.loads(requests.changed(payload)) != json.loads(payload)
    assert json.loads(requests.with_text(payload)) == {**json.loads(payload), "tocsin_check": UNUSUAL}
    assert requests.changed(b"17") != b"17"


@pytest.mark.parametrize("payload", [b"{", b'"\\ud800"', b"\xff", b"[" * 100_000])
def test_payload_that_is_no_json_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        requests.compact(payload)


def test_signatures_are_right_where_they_should_be() -> None:
    it = made()
    valid = it.post("a", PAYLOAD, NOW)
    assert signing.verify(valid.headers, valid.body, [SECRET], NOW)
    assert not signing.verify(it.post("a", PAYLOAD, NOW, secrets=[STRANGER]).headers, PAYLOAD, [SECRET], NOW)
    assert signing.verify(it.post("a", PAYLOAD, NOW, secrets=[STRANGER, SECRET]).headers, PAYLOAD, [SECRET], NOW)
    assert "webhook-signature" not in it.post("a", PAYLOAD, NOW, secrets=[]).headers


def test_longest_id_has_200_characters_and_large_headers_stay_within_what_an_event_may_set() -> None:
    it = made()
    assert len(it.id_of("longest id", longest=True)) == 200
    headers = headers_of(wire_of(it.post("x", PAYLOAD, NOW, padded=True)))
    assert len(headers["x-tocsin-check"]) == 3_900 and headers["traceparent"].startswith("00-")


def test_changed_headers_keep_the_signature() -> None:
    wire = wire_of(made().post("a", PAYLOAD, NOW), change={"ce-id": "other", "ce-type": None})
    headers = headers_of(wire)
    assert (headers["ce-id"], headers["webhook-id"]) == ("other", "check:s:a") and "ce-type" not in headers


def test_python_receivers_read_the_deliveries() -> None:
    from shared.client.receiving import CLOCK
    from shared.core.clock import SettableClock

    clock = CLOCK.set(SettableClock(NOW))
    try:
        found = verify(headers_of(wire_of(made().post("a", PAYLOAD, NOW, attempt=2))), PAYLOAD, SECRET)
    finally:
        CLOCK.reset(clock)
    assert (found.id, found.attempt, found.tenant, found.channel) == ("check:s:a", 2, "check", "check")


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"3", 3),
        (b' {"count": 4} ', 4),
        (b"[1,2]", 2),
        (b"[]", 0),
        (b"-1", None),
        (b"true", None),
        (b"1.5", None),
        (b'{"count":"3"}', None),
        (b"", None),
        (b"[" * 4096, None),
        (b"9" * 4096, None),
    ],
)
def test_count_is_a_number_an_object_or_a_list(body: bytes, count: int | None) -> None:
    assert requests.read_count(body) == count
