"""Connections to the endpoint: made only to addresses that the egress rules allow and that were found once, and with bounded reads.

The endpoint may be hostile. Of an answer 64 KiB are read, its body for a second, all of it by a deadline; redirects are not followed; no
text of it is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from ...core.http1.answer import MAX_ANSWER_BYTES, AnswerReader
from ...core.http1.head import AnswerRefused
from ...core.http1.pool import addr_info, default_tls
from ...delivery.channels import rules
from ...delivery.channels.guarded_client import MAX_ANSWER_SECONDS
from ...delivery.egress_guard import Egress, EgressRefused, SafeResolver
from ...delivery.name_lookups import ResolveHost, system_lookup
from .requests import Wire
from .seen import Certificate, Observed, duplicate_of

KEPT_BODY: Final = 4096
"""Bytes of an answer's body that are kept, for the token and the count."""
LOOKUP_SECONDS: Final = 10.0
_PIECE: Final = 64 * 1024
_FIELD: Final = re.compile(rb"^([^:\r\n]++):([^\r\n]*+)\r?\n", re.MULTILINE)
_DAY: Final = 86_400.0


class EndpointUnreachable(Exception):
    """Raised if a connection cannot be made. Its text is the reason, in this command's words."""


class CertificateRefused(EndpointUnreachable):
    """Raised if the certificate of the endpoint is not valid."""


class Received(NamedTuple):
    """An answer with the parts that checks read. fields: names in lower case."""

    seen: Observed
    fields: Mapping[str, str]
    body: bytes
    whole: bool
    before: float
    after: float
    """This machine's time in seconds before the request and after the answer."""


class Endpoint:
    """A host and port that the user named, with the addresses that were found for them."""

    def __init__(self, url: str, egress: Egress, *, tls: ssl.SSLContext | None = None, lookup: ResolveHost = system_lookup) -> None:
        place = URL(url, encoded=True)
        self.host, self.port, self.secure = place.raw_host or "", place.port or 0, place.scheme == "https"
        self._egress, self._tls, self._lookup = egress, tls, lookup
        self._infos: list[AddrInfoType] = []

    async def resolve(self) -> None:
        """Find the addresses, once: a name that changes its address meanwhile is not followed.

        Raises `EndpointUnreachable`, `EgressRefused`.
        """
        with contextlib.suppress(ValueError):
            literal = ip_address(self.host)
            self._egress.check(self.host, str(literal), plain=not self.secure)
            self._infos = [addr_info(str(literal), self.port)]
            return
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                self._infos = await SafeResolver(self._egress, self._lookup).resolve(self.host, self.port)
        except TimeoutError:
            raise EndpointUnreachable(f"no answer of a name server within {LOOKUP_SECONDS:g} s") from None
        except EgressRefused:
            raise
        except OSError:
            raise EndpointUnreachable("the host's name could not be resolved") from None

    @property
    def here(self) -> bool:
        """True if all addresses are this machine's own."""
        return all(ip_address(info[4][0]).is_loopback for info in self._infos)

    async def connect(self, seconds: float) -> Link:
        """Return a new connection. Raises `EndpointUnreachable`, `CertificateRefused`, `EgressRefused`."""
        began = time.monotonic()
        infos = list(self._infos)
        context = (self._tls or default_tls()) if self.secure else None
        try:
            async with asyncio.timeout(seconds):
                sock = await aiohappyeyeballs.start_connection(infos, happy_eyeballs_delay=0.25, socket_factory=self._socket)
                try:
                    name = self.host.rstrip(".") if self.secure else None
                    reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name, limit=_PIECE)
                except BaseException:
                    sock.close()
                    raise
        except TimeoutError:
            raise EndpointUnreachable(f"no connection within {seconds:g} s") from None
        except EgressRefused:
            raise
        except ssl.SSLCertVerificationError as error:
            raise CertificateRefused(rules.one_line(error.verify_message)) from None
        except ssl.SSLError as error:
            raise EndpointUnreachable(f"TLS failure: {error.reason or 'handshake failed'}") from None
        except (OSError, RuntimeError) as error:
            raise EndpointUnreachable(f"could not connect: {_reason(error)}") from None
        return Link(reader, writer, time.monotonic() - began)

    def _socket(self, info: AddrInfoType) -> socket.socket:
        self._egress.check(self.host, str(info[4][0]), plain=not self.secure)
        return socket.socket(info[0], info[1], info[2])


class Link:
    """One connection. It carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connecting: float) -> None:
        """connecting: seconds that it took to connect. They count with the first answer; a wait until the first request does not."""
        self._reader, self._writer, self._connecting = reader, writer, connecting
        self._used = False
        self._answered = time.monotonic()
        self.open = True
        """True if another request can be sent: the last answer allows it, and was read to its end."""

    @property
    def certificate(self) -> Certificate | None:
        """The other side's certificate; None without TLS."""
        tls: Any = self._writer.get_extra_info("ssl_object")
        if tls is None:
            return None
        ends = (tls.getpeercert() or {}).get("notAfter")
        return Certificate(days=None if ends is None else (ssl.cert_time_to_seconds(ends) - time.time()) / _DAY)

    @property
    def ended(self) -> bool:
        """True if the other side has closed the connection."""
        return self._reader.at_eof() or self._reader.exception() is not None

    @property
    def unused(self) -> float:
        """Seconds since the last answer, or since the connection was made."""
        return time.monotonic() - self._answered

    async def ask(self, pieces: Sequence[bytes], *, patience: float, pause: float = 0.0, since: float | None = None) -> Received:
        """Send the pieces with pauses between them, and return the answer.

        patience: seconds for which it is awaited. since: monotonic time from which its time counts, by default with connecting.
        """
        wall, used = time.time(), self._used
        began = since or time.monotonic() - (0.0 if used else self._connecting)
        reader = AnswerReader(KEPT_BODY, keep_accepted=True)
        sending = asyncio.create_task(self._send(pieces, pause))
        failure, timed_out, early, head_at, wall_after, read = "", False, False, 0.0, wall, 0
        try:
            async with asyncio.timeout(patience + pause * len(pieces)) as scope:
                while not reader.complete:
                    data = await self._reader.read(_PIECE)
                    if not data:
                        reader.end(clean=True)
                        self.open = False
                        break
                    was_read = reader.head_read
                    reader.feed(data)
                    read += len(data)
                    if reader.head_read and not was_read:
                        head_at, wall_after, early = time.monotonic(), time.time(), not sending.done()
                        ends_at = asyncio.get_running_loop().time() + MAX_ANSWER_SECONDS
                        scope.reschedule(min(ends_at, scope.when() or ends_at))
        except TimeoutError:
            timed_out = not reader.head_read
            failure = f"no answer within {patience:g} s"
        except AnswerRefused as refused:
            failure = str(refused)
        except OSError as error:
            failure = f"connection lost: {_reason(error)}"
        finally:
            sending.cancel()
            sent = (await asyncio.gather(sending, return_exceptions=True))[0] is None
        if not reader.head_read and not failure:
            failure = f"the connection was closed {'within the head of its' if reader.began else 'before an'} answer"
        self._used, self._answered = True, time.monotonic()
        self.open = self.open and reader.complete and reader.reusable and sent
        fields = {name.decode("latin-1").lower(): value.strip().decode("latin-1") for name, value in _FIELD.findall(reader.fields)}
        ms = ((head_at or time.monotonic()) - began) * 1000
        unread = not reader.complete or max(read, _length(fields)) > MAX_ANSWER_BYTES
        seen = _observed(reader, fields, failure, ms, early=early, used=used, timed_out=timed_out, unread=unread)
        if not self.open:
            self.close()
        whole = reader.complete and not reader.cut
        return Received(seen, fields, bytes(reader.kept), whole, wall, wall_after)

    async def watch(self) -> float:
        """Wait, with the connection unused, until the other side closes it or sends something. Return the seconds until then."""
        began = time.monotonic()
        with contextlib.suppress(OSError):
            # It may also be reset, which ends it too.
            await self._reader.read(1)
        self.close()
        return time.monotonic() - began

    def close(self) -> None:
        """Close the connection at once."""
        self.open = False
        self._writer.transport.abort()

    async def _send(self, pieces: Sequence[bytes], pause: float) -> None:
        for number, piece in enumerate(pieces):
            if number and pause:
                await asyncio.sleep(pause)
            self._writer.write(piece)
            await self._writer.drain()


def _observed(
    reader: AnswerReader,
    fields: Mapping[str, str],
    failure: str,
    ms: float,
    *,
    early: bool,
    used: bool,
    timed_out: bool,
    unread: bool,
) -> Observed:
    if not reader.head_read or reader.status is None:
        return Observed(failure=failure, ms=ms, used=used, timed_out=timed_out)
    now = round(time.time() * 1000)
    verdict = rules.judge(reader.status, reader.retry_after, now, never=reader.never)
    given = reader.retry_after is not None
    return Observed(
        reader.status,
        outcome=verdict.outcome if verdict.outcome != "stale" else "retry",
        ms=ms,
        early=early,
        unread=unread,
        retry_after=rules.retry_after(reader.retry_after, now) is not None if given else None,
        retry_later=verdict.retry_after,
        duplicate=duplicate_of(reader.status, fields),
        used=used,
        says_kept=reader.reusable and not unread,
    )


def _length(fields: Mapping[str, str]) -> int:
    text = fields.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else "no reason given"


async def exchange(endpoint: Endpoint, wire: Wire, *, patience: float) -> Received:
    """Send one request on a connection of its own. A failure to connect is a part of the answer."""
    wall, began = time.time(), time.monotonic()
    try:
        link = await endpoint.connect(patience)
    except EndpointUnreachable as error:
        return Received(unreached(error, began), {}, b"", False, wall, time.time())
    try:
        return await link.ask([wire.head + wire.body], patience=patience)
    finally:
        link.close()


def unreached(error: EndpointUnreachable, began: float) -> Observed:
    """Return the observation of a connection that could not be made."""
    return Observed(failure=str(error), ms=(time.monotonic() - began) * 1000, unreached=True)
