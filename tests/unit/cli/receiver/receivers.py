"""Receivers as real HTTP servers on free ports: a good one, and others with one planted fault each."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import ssl
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from time import time
from urllib.parse import unquote

from shared.client.errors import BadDelivery
from shared.client.receiving import CLOCK, verify
from shared.core import signing
from shared.core.clock import SettableClock

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Reply:
    """An answer. raw: the bytes of the whole answer instead. close: the connection ends behind it, unannounced."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes | None = None
    close: bool = False


class Hangup(Exception):
    """Ends the connection without an answer."""


class Good:
    """A receiver without a fault: verifies, stores ids with the work, answers short."""

    limit = 1 << 20
    """Bytes of the largest body."""
    keeps = True
    """False: closes the connection after each answer, unannounced."""
    announced = True
    skew = 0.0
    """Seconds by which its clock is ahead."""
    early: Reply | None = None
    """Answer that is sent before the body is read."""
    header = "tocsin-duplicate"
    keep_alive = 60.0
    """Seconds for which a connection stays open without a request."""

    def __init__(self) -> None:
        self.token = ""
        self.known = set[str]()
        self.effects = Counter[str]()
        self.requests = list[Request]()
        self.connections = 0

    async def handle(self, request: Request) -> Reply:
        if request.method == "GET":
            return self.shown(request)
        if not self.verifies(request):
            return Reply(401)
        return await self.work(request)

    def shown(self, request: Request) -> Reply:
        if request.path == "/.well-known/tocsin-check":
            return Reply(200 if self.token else 404, body=self.token.encode())
        path, _, query = request.path.partition("?event=")
        return Reply(body=str(self.effects[unquote(query)]).encode()) if path == "/done" else Reply(404)

    def verifies(self, request: Request) -> bool:
        clock = CLOCK.set(SettableClock(round((time() + self.skew) * 1000)))
        try:
            verify(request.headers, self.signed(request), SECRET)
        except BadDelivery:
            return False
        finally:
            CLOCK.reset(clock)
        return True

    def signed(self, request: Request) -> bytes:
        return request.body

    def key(self, request: Request) -> str:
        return request.headers["webhook-id"]

    async def work(self, request: Request) -> Reply:
        key = self.key(request)
        if key in self.known:
            return Reply(headers={self.header: "yes"})
        await self.between()
        self.known.add(key)
        self.effects[request.headers["webhook-id"]] += 1
        return Reply(headers={self.header: "no"})

    async def between(self) -> None:
        """Do what lies between the look for the id and the work. Nothing does."""


class NoDedup(Good):
    async def work(self, request: Request) -> Reply:
        self.effects[request.headers["webhook-id"]] += 1
        return Reply(headers={self.header: "no"})


class Silent(Good):
    """Says nothing about duplicates."""

    async def work(self, request: Request) -> Reply:
        return Reply((await super().work(request)).status)


class DedupByBody(Good):
    def key(self, request: Request) -> str:
        return hashlib.sha256(request.body).hexdigest()


class DedupByCeId(Good):
    def verifies(self, request: Request) -> bool:
        return signing.verify(request.headers, request.body, [SECRET], round(time() * 1000))

    def key(self, request: Request) -> str:
        return request.headers["ce-id"]


class Race(Good):
    async def between(self) -> None:
        await asyncio.sleep(0.2)


class Forgets(Good):
    """Knows the last four ids."""

    async def work(self, request: Request) -> Reply:
        reply = await super().work(request)
        self.order = [each for each in getattr(self, "order", []) if each != self.key(request)] + [self.key(request)]
        self.known &= set(self.order[-4:])
        return reply


class RefusesDuplicates(Good):
    async def work(self, request: Request) -> Reply:
        if self.key(request) in self.known:
            return Reply(409)
        return await super().work(request)


class VerifiesNothing(Good):
    def verifies(self, request: Request) -> bool:
        return True


class VerifiesDecoded(Good):
    def signed(self, request: Request) -> bytes:
        try:
            return json.dumps(json.loads(request.body), ensure_ascii=False, separators=(",", ":")).encode()
        except ValueError:
            return request.body


class IgnoresTime(Good):
    def verifies(self, request: Request) -> bool:
        stamp = int(request.headers["webhook-timestamp"])
        return signing.verify(request.headers, request.body, [SECRET], stamp * 1000)


class FirstSignatureOnly(Good):
    def verifies(self, request: Request) -> bool:
        first = request.headers.get("webhook-signature", "").split(" ")[0]
        return signing.verify({**request.headers, "webhook-signature": first}, request.body, [SECRET], round(time() * 1000))


class StoresBeforeVerifying(Good):
    async def handle(self, request: Request) -> Reply:
        if request.method == "GET":
            return self.shown(request)
        known = self.key(request) in self.known
        self.known.add(self.key(request))
        if not self.verifies(request):
            return Reply(401)
        if known:
            return Reply(headers={self.header: "yes"})
        self.effects[self.key(request)] += 1
        return Reply(headers={self.header: "no"})


class WorksBeforeVerifying(Good):
    async def handle(self, request: Request) -> Reply:
        if request.method != "GET" and "webhook-id" in request.headers and not self.verifies(request):
            self.effects[request.headers["webhook-id"]] += 1
            return Reply(401)
        return await super().handle(request)


class FinalForWrongSignatures(Good):
    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        return Reply(400) if reply.status == 401 else reply


class FailsForWrongSignatures(Good):
    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        return Reply(500) if reply.status == 401 else reply


class Closes(Good):
    keeps, announced = False, False


class ClosesAnnounced(Good):
    keeps = False


class NoSecondRequest(Good):
    """Closes a connection at its second request, without an answer. The connection's number is counted by the server."""

    second = True


class Slow(Good):
    async def handle(self, request: Request) -> Reply:
        if request.method != "GET":
            await asyncio.sleep(0.8)
        return await super().handle(request)


class NeverAnswers(Good):
    async def handle(self, request: Request) -> Reply:
        await asyncio.sleep(60)
        return Reply()


class AnswersBeforeWork(Good):
    async def work(self, request: Request) -> Reply:
        key = self.key(request)
        if key not in self.known:
            self.known.add(key)
            asyncio.get_running_loop().call_later(0.3, self.effects.update, [key])
        return Reply(202)


class WrongCount(Silent):
    """Counts something else."""

    def shown(self, request: Request) -> Reply:
        return Reply(body=b"3")


class NoEffect(Silent):
    async def work(self, request: Request) -> Reply:
        return Reply()


class NoCount(Silent):
    def shown(self, request: Request) -> Reply:
        return Reply(body=b"<html>")


class AnswersBeforeBody(Good):
    early = Reply(202, headers={"connection": "close"})


class Redirects(Good):
    async def handle(self, request: Request) -> Reply:
        return Reply(302, headers={"location": "http://169.254.169.254/latest/meta-data"})


class WrongClock(Good):
    skew = 600.0


class InexactClock(Good):
    skew = -20.0


class SmallBodies(Good):
    limit = 100 * 1024


class CrashesOnEmpty(Good):
    async def handle(self, request: Request) -> Reply:
        if request.method != "GET" and not request.body:
            raise Hangup
        return await super().handle(request)


class CrashesOnText(Good):
    async def work(self, request: Request) -> Reply:
        if b"\\u0000" in request.body:
            return Reply(500)
        return await super().work(request)


class ShortIds(Good):
    async def work(self, request: Request) -> Reply:
        return Reply(500) if len(self.key(request)) > 128 else await super().work(request)


class SmallHeaders(Good):
    async def handle(self, request: Request) -> Reply:
        if sum(len(name) + len(value) for name, value in request.headers.items()) > 4096:
            return Reply(431)
        return await super().handle(request)


class EndlessAnswer(Good):
    async def work(self, request: Request) -> Reply:
        await super().work(request)
        return Reply(raw=b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\n", body=b"endless")


class HeaderBomb(Good):
    async def handle(self, request: Request) -> Reply:
        return Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"x-bomb: y\r\n" * 200_000)


class SlowDrip(Good):
    async def handle(self, request: Request) -> Reply:
        return Reply(raw=b"HTTP/1.1 200 OK\r\nx-drip: ", body=b"drip")


class Escapes(Good):
    """Answers with escape sequences of terminals wherever it can."""

    async def handle(self, request: Request) -> Reply:
        evil = "\x1b]0;owned\x07\x1b[2J"
        return Reply(
            raw=f"HTTP/1.1 418 {evil}\r\nretry-after: {evil}\r\ndate: {evil}\r\nx-e: {evil}\r\ncontent-length: 4\r\n\r\n\x1b[2J".encode()
        )


class NoClock(Good):
    """Has a date at which time stamps cannot be written, and refuses."""

    async def handle(self, request: Request) -> Reply:
        return Reply(401, headers={"date": "Fri, 31 Dec 9999 23:59:59 GMT"})


class OneAtATime(Good):
    """Serves a connection to its end before it looks at the next one."""

    alone = True


class BadDate(Good):
    async def handle(self, request: Request) -> Reply:
        return Reply(500, headers={"date": "Mon, 01 Jan 2026 99:99:99 +99999999999999", "retry-after": "9" * 400})


class NotHttp(Good):
    async def handle(self, request: Request) -> Reply:
        return Reply(raw=b"SSH-2.0-OpenSSH_9.6\r\n")


class Chunked(Good):
    async def work(self, request: Request) -> Reply:
        reply = await super().work(request)
        head = f"HTTP/1.1 200 OK\r\n{self.header}: {reply.headers[self.header]}\r\ntransfer-encoding: chunked\r\n\r\n"
        return Reply(raw=head.encode() + b"2\r\nok\r\n0\r\n\r\n")


class Throttles(Good):
    """Has no time for some of the deliveries."""

    busy: tuple[str, ...] = ("forged", "spaced", "right-first")

    async def handle(self, request: Request) -> Reply:
        if request.headers.get("webhook-id", "").endswith(self.busy):
            return Reply(429, headers={"retry-after": "1"})
        return await super().handle(request)


class ThrottlesCounts(Silent):
    def shown(self, request: Request) -> Reply:
        self.asked = getattr(self, "asked", 0) + 1
        return Reply(429) if self.asked > 3 else super().shown(request)


class ThrottlesAndVerifiesNothing(Throttles):
    busy = (":unsigned",)

    def verifies(self, request: Request) -> bool:
        return True


class ProxyWithWrongClock(Good):
    """Its answers have the time of a proxy."""

    wrong = -100.0

    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        reply.headers["date"] = formatdate(time() + self.wrong, usegmt=True)
        return reply


class ProxyWithVeryWrongClock(ProxyWithWrongClock):
    wrong = 3_600.0


class AcceptsAndIgnores(Silent):
    """Answers 200 to what it does not trust, and does not work on it."""

    async def handle(self, request: Request) -> Reply:
        reply = await super().handle(request)
        return Reply() if reply.status == 401 else reply


class WorksLaterAndVerifiesNothing(AnswersBeforeWork):
    """Works on each of them some time after its answer: on those that are not signed, when nobody counts any more."""

    def verifies(self, request: Request) -> bool:
        return True

    async def work(self, request: Request) -> Reply:
        if Good.verifies(self, request):
            return await super().work(request)
        return Reply(202)


class FailsByChance(Good):
    """A proxy before it fails at one of the deliveries."""

    at = "spaced"

    async def handle(self, request: Request) -> Reply:
        if request.headers.get("webhook-id", "").endswith(f":{self.at}"):
            return Reply(502)
        return await super().handle(request)


class FailsByChanceInRotation(FailsByChance):
    at = "right-first"


class BadRequestWithoutSignature(Good):
    async def handle(self, request: Request) -> Reply:
        if request.method != "GET" and "webhook-signature" not in request.headers:
            return Reply(400)
        return await super().handle(request)


class ShortKeepAlive(Good):
    """Closes a connection that was not used for a while, as servers do."""

    keep_alive = 0.9


async def _serve(receiver: Good, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    receiver.connections += 1
    served = 0
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(contextlib.suppress(asyncio.IncompleteReadError, TimeoutError, OSError, ssl.SSLError, Hangup))
        if hasattr(receiver, "alone"):
            if receiver.alone is True:
                receiver.alone = asyncio.Lock()
            await stack.enter_async_context(receiver.alone)
        while True:
            async with asyncio.timeout(receiver.keep_alive):
                head = await reader.readuntil(b"\r\n\r\n")
            line, *fields = head[:-4].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in fields)}
            method, path, _ = line.split(" ")
            if served and getattr(receiver, "second", False):
                raise Hangup
            served += 1
            length = int(headers.get("content-length", "0"))
            if receiver.early is not None and method != "GET":
                writer.write(_bytes(receiver, receiver.early))
                await writer.drain()
                await reader.readexactly(length)
                return
            if length > receiver.limit:
                writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                await writer.drain()
                # A server that resets the connection at once may destroy its own answer.
                await reader.readexactly(length)
                return
            request = Request(method, path, headers, await reader.readexactly(length))
            receiver.requests.append(request)
            reply = await receiver.handle(request)
            writer.write(reply.raw if reply.raw is not None else _bytes(receiver, reply))
            await writer.drain()
            while reply.raw is not None and reply.body:
                writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n" if reply.body == b"endless" else b"y")
                await writer.drain()
                await asyncio.sleep(0.01)
            if reply.close or not receiver.keeps:
                return
    writer.close()


def _bytes(receiver: Good, reply: Reply) -> bytes:
    headers = {"date": formatdate(time() + receiver.skew, usegmt=True), **reply.headers, "content-length": str(len(reply.body))}
    if not receiver.keeps and receiver.announced:
        headers["connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Status\r\n{head}\r\n".encode() + reply.body


@contextmanager
def running(receiver: Good, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve in a thread; yield the port."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ports = list[int]()

    async def serve(ended: asyncio.Event) -> None:
        tasks = set[asyncio.Task[None]]()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await _serve(receiver, reader, writer)
            finally:
                writer.transport.abort()
                tasks.discard(task)

        server = await asyncio.start_server(connected, host, 0, ssl=tls, limit=1 << 20)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await ended.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(ended),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
