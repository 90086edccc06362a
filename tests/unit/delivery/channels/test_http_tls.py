"""The http sender and TLS: names, certificates, and ports without it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.core.http1.pool import new_tls
from shared.delivery.channels.http import HttpSender
from tests.certificates import make_certificate

from .conftest import Listen, http_target, make_delivery, make_settings


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def tls_sender(tmp_path: Path) -> AsyncIterator[Callable[[bool], tuple[HttpSender, ssl.SSLContext, list[str]]]]:
    pem = make_certificate(tmp_path, "hook.example")
    made: list[HttpSender] = []

    def make(trusted: bool) -> tuple[HttpSender, ssl.SSLContext, list[str]]:
        server, asked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str]()
        server.load_cert_chain(pem)
        server.sni_callback = lambda sock, name, context: asked.append(name or "")  # type: ignore[assignment]
        client = ssl.create_default_context(cafile=str(pem)) if trusted else None
        made.append(HttpSender(make_settings("127.0.0.0/8"), lookup=loopback, tls=client))
        return made[-1], server, asked

    yield make
    for sender in made:
        await sender.close()


async def test_tls_asks_for_and_checks_the_name_in_the_url(listen: Listen, tls_sender: Any) -> None:
    sender, context, asked = tls_sender(True)
    receiver = await listen(tls=context)
    assert (await sender.send(http_target(f"https://hook.example:{receiver.port}/"), make_delivery())).outcome == "delivered"
    assert asked == ["hook.example"]
    assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"
    verdict = await sender.send(http_target(f"https://other.example:{receiver.port}/"), make_delivery())
    assert verdict.outcome == "retry"
    assert verdict.error and "TLS failure: certificate refused" in verdict.error and "mismatch" in verdict.error.lower()
    assert len(receiver.requests) == 1


async def test_an_untrusted_certificate_is_refused(listen: Listen, tls_sender: Any) -> None:
    sender, context, _ = tls_sender(False)
    receiver = await listen(tls=context)
    verdict = await sender.send(http_target(f"https://hook.example:{receiver.port}/x?k=v"), make_delivery())
    assert verdict.outcome == "retry"
    assert verdict.error and verdict.error.startswith(f"https://hook.example:{receiver.port}: TLS ") and "certificate" in verdict.error
    assert receiver.requests == []


async def test_a_certificate_without_an_alternative_name_is_refused(listen: Listen, tmp_path: Path) -> None:
    for alternative, outcome in ((True, "delivered"), (False, "retry")):
        pem = make_certificate(tmp_path, "hook.example", alternative=alternative)
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), new_tls()
        server.load_cert_chain(pem)
        client.load_verify_locations(pem)
        receiver = await listen(tls=server)
        sender = HttpSender(make_settings("127.0.0.0/8"), lookup=loopback, tls=client)
        verdict = await sender.send(http_target(f"https://hook.example:{receiver.port}/"), make_delivery())
        await sender.close()
        assert verdict.outcome == outcome and len(receiver.requests) == alternative, verdict


async def test_tls_to_a_port_without_it_is_a_tls_failure(listen: Listen, tls_sender: Any) -> None:
    sender, _, _ = tls_sender(True)

    async def answer_without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer_without_tls, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    verdict = await sender.send(http_target(f"https://hook.example:{port}/"), make_delivery())
    assert verdict.outcome == "retry" and verdict.error and "TLS failure" in verdict.error
    server.close()
    await server.wait_closed()
