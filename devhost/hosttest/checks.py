"""Checks of requests, events, queues and timers. Each returns a line about what it saw, or fails with an AssertionError."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from devhost.hosttest.receiver import ArrivalReceiver
from shared.app.timers import PERIODS
from shared.core.clock import to_text
from shared.storage.names import ALL_QUEUES, POISON_QUEUES, QUEUE_INGEST

PATIENCE: Final = 180.0
"""Seconds that a check waits for what it expects."""
BREAKER_OPENS_AFTER: Final = 12
"""Failed deliveries after which a channel's breaker has opened, even if some are tried one after the other."""
CANCEL_AHEAD: Final = 10.0
"""Seconds before an event is due that it is cancelled."""
APP_BODY_LIMIT: Final = 16 * 1024 * 1024


class NotChecked(Exception):
    """The check cannot be made on this host; the message says why."""


@dataclass(frozen=True)
class Target:
    """The app under test: a tenant of the test's own, with a channel to the receiver."""

    url: str
    tenant: str
    key: str
    admin_key: str
    host_body_limit: int
    storage: str
    receiver: ArrivalReceiver
    session: aiohttp.ClientSession
    output: Path | None
    """The file with the output of the host; None if it runs already."""

    async def call(self, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
        """Call the API; return the status and the document."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        async with self.session.request(method, f"{self.url}/api/v1/{path}", json=body, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    async def post_batch(self, count: int, first: float, span: float) -> list[str]:
        """Post events that are due evenly over `span` seconds, from `first` seconds from now on; return their ids."""
        start = time.time() + first
        lines = [{"due": to_text(round((start + span * number / count) * 1000)), "payload": number} for number in range(count)]
        status, document = await self.call("POST", "events/batch", lines)
        assert status == 200 and document["accepted"] == count, document
        return [line["id"] for line in document["results"]]

    def queue(self, name: str) -> QueueClient:
        """Return a client that sends text as it is."""
        return QueueClient.from_connection_string(self.storage, name)


async def until[T](look: Callable[[], Awaitable[T | None]], what: str, patience: float = PATIENCE) -> T:
    """Return the first value that is true. Raises AssertionError after `patience` seconds."""
    ends_at = time.monotonic() + patience
    while not (found := await look()):
        assert time.monotonic() < ends_at, f"still waiting for {what}"
        await asyncio.sleep(0.2)
    return found


async def raw(target: Target, head: str, body: bytes = b"") -> tuple[bytes, bytes]:
    """Send bytes, read until the connection ends; return head and body as they came."""
    parts = urlsplit(target.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    writer.write(f"{head}\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()
    before, _, after = answer.partition(b"\r\n\r\n")
    return before, after


async def first(target: Target, head: str, body: bytes) -> bytes:
    """Send bytes, and return the head of the answer, without waiting for the end of the connection."""
    parts = urlsplit(target.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    writer.write(f"{head}\r\nHost: {parts.netloc}\r\n\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    writer.close()
    return answer


# Requests


async def answer_is_chunked(target: Target) -> str:
    """A body is chunked, and the server names itself."""
    head, body = await raw(target, "GET /api/healthz HTTP/1.1")
    assert head.startswith(b"HTTP/1.1 200 ") and b'"alive"' in body, head
    assert b"transfer-encoding: chunked" in head.lower() and b"server: kestrel" in head.lower(), head
    return "200, chunked, Server: Kestrel"


async def unknown_routes_are_404(target: Target) -> str:
    """Unknown routes and wrong methods have no body."""
    for line in ("GET /api/v1/no-such-route", "PUT /api/healthz", "GET /healthz", "HEAD /api/healthz", "OPTIONS /api/healthz"):
        head, body = await raw(target, f"{line} HTTP/1.1")
        assert head.startswith(b"HTTP/1.1 404 ") and body == b"", (line, head, body)
    return "404 without a body for unknown routes, wrong methods, HEAD and OPTIONS"


async def home_page_is_off(target: Target) -> str:
    """`/` shows nothing; the devhost leads to the dashboard."""
    head, body = await raw(target, "GET / HTTP/1.1")
    leads = head.startswith(b"HTTP/1.1 302 ") and b"\r\nlocation: /api/dashboard\r\n" in head.lower() + b"\r\n"
    assert body == b"" and (leads or head.startswith(b"HTTP/1.1 204 ")), head
    return "/ leads to the dashboard" if leads else "/ is 204 (AzureWebJobsDisableHomepage)"


async def admin_pages_need_a_key(target: Target) -> str:
    """`ping` answers, all else below /admin does not."""
    for path, status in (("host/ping", 200), ("host/status", 401), ("functions", 401)):
        head, _ = await raw(target, f"GET /admin/{path} HTTP/1.1")
        assert int(head.split()[1]) == status, (path, head)
    return "ping 200, others 401"


async def chunked_bodies_are_411(target: Target) -> str:
    """The host delivers a chunked body empty, and the app says so."""
    head = f"POST /api/v1/events HTTP/1.1\r\nAuthorization: Bearer {target.key}\r\nContent-Type: application/json"
    answer, body = await raw(target, f"{head}\r\nTransfer-Encoding: chunked", b"2\r\n{}\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 411 ") and b"length" in body, answer
    return "411 with a problem"


async def large_bodies_are_refused(target: Target) -> str:
    """The app refuses what is over its limit, the host what is over its own, without reading it."""
    limit = target.host_body_limit
    if limit > APP_BODY_LIMIT:
        data = b" " * (APP_BODY_LIMIT + 1)
        headers = {"authorization": f"Bearer {target.key}", "content-type": "application/json"}
        async with target.session.post(f"{target.url}/api/v1/events/batch", data=data, headers=headers) as answer:
            assert answer.status == 413 and (await answer.json())["status"] == 413, answer.status
    began = time.monotonic()
    head = await first(target, f"POST /api/v1/events/batch HTTP/1.1\r\nContent-Length: {limit + 1}", b"[")
    assert head.startswith(b"HTTP/1.1 500 ") and b"content-length: 0" in head.lower(), head
    return f"413 of the app; 500 without a body of the host over {limit:,} bytes, after {(time.monotonic() - began) * 1000:.0f} ms"


async def texts_survive_the_way(target: Target) -> str:
    """Escapes in paths, and repeated parameters."""
    status, document = await target.call("PUT", "schedules/a%20%C3%A4", {"every": "PT1H", "payload": 1})
    assert status == 422 and document["status"] == 422, (status, document)
    status, document = await target.call("GET", "events?limit=1&limit=2")
    assert status == 422, (status, document)
    return "escapes in a path, a repeated parameter"


async def dashboard_is_cached(target: Target) -> str:
    """A page that has not changed is not sent again."""
    async with target.session.get(f"{target.url}/api/dashboard") as answer:
        assert answer.status == 200
        etag = answer.headers["etag"]
    async with target.session.get(f"{target.url}/api/dashboard", headers={"if-none-match": etag}) as answer:
        assert answer.status == 304
    return "200 with an ETag, then 304"


# Events


async def event_is_punctual(target: Target) -> str:
    """One event comes once, and not early."""
    [event] = await target.post_batch(1, 3.0, 0.0)
    [arrival] = await until(lambda: _arrived(target, event), "the delivery")
    assert arrival.at >= arrival.due, f"{arrival.due - arrival.at:.1f} ms early"
    return f"{arrival.at - arrival.due:.0f} ms late"


async def _arrived(target: Target, event: str) -> Any:
    return target.receiver.arrivals.get(event)


async def events_come_once(target: Target) -> str:
    """Many events over some seconds come once each."""
    events = await target.post_batch(200, 3.0, 5.0)

    async def all_arrived() -> bool:
        return all(event in target.receiver.arrivals for event in events)

    await until(all_arrived, "all deliveries")
    found = [target.receiver.arrivals[event] for event in events]
    assert all(len(each) == 1 for each in found), "some came twice"
    assert all(each[0].at >= each[0].due for each in found), "some were early"
    late = sorted(each[0].at - each[0].due for each in found)
    return f"200 of 200, p50 {late[100]:.0f} ms late, max {late[-1]:.0f} ms"


async def cancelled_event_never_comes(target: Target) -> str:
    """A cancel that was answered holds."""
    # So far ahead that nobody has claimed it when the cancel arrives.
    [event] = await target.post_batch(1, CANCEL_AHEAD, 0.0)
    status, document = await target.call("DELETE", f"events/{event}")
    assert status == 204, (status, document)
    [later] = await target.post_batch(1, CANCEL_AHEAD + 2.0, 0.0)
    await until(lambda: _arrived(target, later), "an event that is due later")
    assert event not in target.receiver.arrivals
    return "cancelled"


# Queues


async def all_queues_exist(target: Target) -> str:
    """Poison queues too: the host looks for a missing one at each poll."""
    wanted = {*ALL_QUEUES, *POISON_QUEUES}
    async with QueueServiceClient.from_connection_string(target.storage) as service:
        found = {queue.name async for queue in service.list_queues()}
    assert found >= wanted, f"missing: {', '.join(sorted(wanted - found))}"
    return f"{len(wanted)} queues"


async def producers_message_becomes_an_event(target: Target) -> str:
    """A message of the ingest queue is stored and delivered."""
    message = {"tenant": target.tenant, "key": target.key, "events": [{"delay": "PT1S", "payload": "queued", "id": "from-the-queue"}]}
    async with target.queue(QUEUE_INGEST) as queue:
        await queue.send_message(_encoded(json.dumps(message).encode()))
    [arrival, *more] = await until(lambda: _arrived(target, "from-the-queue"), "the delivery")
    assert not more and arrival.at >= arrival.due
    return "stored and delivered"


async def message_that_is_not_text_becomes_a_reject(target: Target) -> str:
    """The host hands bytes over as they are."""
    former = {reject["id"] for reject in await _rejects(target)}
    async with target.queue(QUEUE_INGEST) as queue:
        await queue.send_message(_encoded(b"\xff\xfe"))

    async def found() -> list[Any]:
        return [reject for reject in await _rejects(target) if reject["id"] not in former and "UTF-8" in reject["problem"]["detail"]]

    await until(found, "the reject")
    return "rejected"


async def _rejects(target: Target) -> list[Any]:
    status, document = await target.call("GET", "rejects?limit=1000", key=target.admin_key)
    assert status == 200, document
    items: list[Any] = document["items"]
    return items


async def message_that_is_not_base64_is_poison(target: Target) -> str:
    """The app never sees it; its copy lives for seven days."""
    text = f"!{time.time_ns()}"
    async with target.queue(QUEUE_INGEST) as queue, target.queue(f"{QUEUE_INGEST}-poison") as poison:
        before = await _count(poison)
        await queue.send_message(text)

        async def copied() -> Any:
            # A message that a listener has taken is hidden, and its function cannot decode it.
            return next((message for message in await poison.peek_messages(32) if message.content == text), None)

        async def moved() -> bool:
            return await _count(poison) > before

        copy = None
        for _ in range(120):
            if (copy := await copied()) is not None or await moved():
                break
            await asyncio.sleep(0.5)
        assert copy is not None or await moved(), "it is not in the poison queue"
        if copy is None:
            return "moved; the poison queue's listener was faster, its time to live was not seen"
        lives = copy.expires_on - copy.inserted_on
        assert lives == timedelta(days=7), lives
        return "moved; the copy lives for 7 days"


async def _count(queue: QueueClient) -> int:
    return (await queue.get_queue_properties()).approximate_message_count or 0


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Timers


async def timers_tick(target: Target) -> str:
    """Each timer with a period below an hour has run."""
    wanted = [name for name, period in PERIODS.items() if period < 3600]

    async def ages() -> dict[str, float] | None:
        async with target.session.get(f"{target.url}/api/readyz") as answer:
            document = await answer.json()
        timers = document["timers"]
        found = {name: timers[name]["age_s"] for name in wanted if timers.get(name, {}).get("age_s") is not None}
        return found if len(found) == len(wanted) else None

    found = await until(ages, "the first tick of every timer")
    return ", ".join(f"{name} {age:.0f} s ago" for name, age in found.items())


# Health and log lines


async def readyz(target: Target) -> tuple[int, dict[str, Any]]:
    """Return the status and the document of `/readyz`."""
    async with target.session.get(f"{target.url}/api/readyz") as answer:
        return answer.status, await answer.json(content_type=None)


async def readyz_says_ready(target: Target) -> str:
    """Storage answers and the sweep runs."""
    status, document = await readyz(target)
    assert (status, document["status"], document["storage"]["reachable"]) == (200, "ready", True), document
    return f"ready, version {document['version']}"


async def line_logged_after_the_answer_arrives(target: Target) -> str:
    """A breaker opens in the background work of requests that were answered, and the host's output has its line once."""
    if target.output is None:
        raise NotChecked("set HOST_START: the output of a host that runs already is not known")
    # Nothing listens there.
    nowhere = {"type": "http", "url": "http://127.0.0.1:9/"}
    status, document = await target.call("PUT", f"tenants/{target.tenant}/channels/nowhere", nowhere, target.admin_key)
    assert status == 201, document
    for number in range(BREAKER_OPENS_AFTER):
        status, document = await target.call("POST", "events", {"delay": "PT0S", "payload": number, "channel": "nowhere"})
        assert status == 201, document
    wanted = f"The breaker of {target.tenant}/nowhere opens"

    def lines() -> list[str]:
        assert target.output is not None
        return [line for line in target.output.read_text(errors="replace").splitlines() if wanted in line]

    async def found() -> list[str]:
        return lines()

    await until(found, f"the line '{wanted}' in the host's output (an exporter must be off)")
    # Time for a second copy, by another way.
    await asyncio.sleep(2)
    assert len(lines()) == 1, lines()
    return lines()[0].strip()[:100]


type Check = Callable[[Target], Awaitable[str]]

CHECKS: Final[tuple[Check, ...]] = (
    answer_is_chunked,
    unknown_routes_are_404,
    home_page_is_off,
    admin_pages_need_a_key,
    chunked_bodies_are_411,
    large_bodies_are_refused,
    texts_survive_the_way,
    dashboard_is_cached,
    all_queues_exist,
    event_is_punctual,
    events_come_once,
    cancelled_event_never_comes,
    producers_message_becomes_an_event,
    message_that_is_not_text_becomes_a_reject,
    message_that_is_not_base64_is_poison,
    timers_tick,
    readyz_says_ready,
    line_logged_after_the_answer_arrives,
)
