"""The http channel: signed CloudEvents by POST, to addresses that the egress rules allow.

One session per process, made in the running loop when first needed. No redirects, proxies, cookies or decompression. The verdict is the
status: the body is read only so that the connection can be used again, for one second and at most 64 KiB with its head.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import aiohttp
from aiohttp.connector import AddrInfoType
from multidict import CIMultiDict
from yarl import URL

from ...core import signing
from ...core.clock import Clock, SystemClock
from ...core.settings import Settings
from ..egress_guard import Egress, EgressRefused, SafeResolver
from ..name_lookups import NameLookups, NameUnresolved, ResolveHost, system_lookup
from . import cloudevents, rules
from .http_answer import SENT, AnswerConnector, AnswerRefused, ReceiverResponse, SentRequest
from .model import HttpChannel
from .ports import OutgoingDelivery, SecondVerdict, Target, Verdict

USER_AGENT = "tocsin/0.1"
MAX_ANSWER_SECONDS = 1.0
_MAX_PLANS = 10_000
_MAX_SHOWN = 200

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\u0080-\uffff]{0,4096}")
_OURS = frozenset(
    (
        *("content-type", "user-agent", "traceparent", "accept-encoding"),
        # The connection's own headers, which the client library must control: a second length or encoding would split the request.
        *("host", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer"),
        *("upgrade", "expect", "proxy-authorization", "proxy-connection", "proxy-authenticate", "http2-settings"),
    )
)
_SKIPPED = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


def is_ours(name: str) -> bool:
    """Return True for a header that a channel's own `headers` cannot set; such entries are left out."""
    low = name.lower()
    return low in _OURS or low.startswith(("ce-", "webhook-"))


@dataclass(slots=True)
class _Plan:
    """The values computed once per channel: parsed URL, its readable form, fixed headers; or the reason why it can never work."""

    spec: HttpChannel
    url: URL = field(default_factory=URL)
    shown: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    timeout: aiohttp.ClientTimeout = field(default_factory=aiohttp.ClientTimeout)
    problem: str | None = None


def _new_socket(info: AddrInfoType) -> socket.socket:
    return socket.socket(info[0], info[1], info[2])


def show(url: URL) -> str:
    """Return `scheme://host:port/path` for errors: no user, no query, no fragment, cut to 200 characters."""
    host = url.raw_host or ""
    return rules.one_line(f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port}{url.raw_path}", _MAX_SHOWN)


def problem_of(spec: HttpChannel, egress: Egress) -> str | None:
    """Return the reason why a channel with these settings can never deliver, or None. For code that stores channels."""
    return _make_plan(spec, egress).problem


def _make_plan(spec: HttpChannel, egress: Egress) -> _Plan:
    try:
        url = URL(spec.url)
        shown = show(url)
    except ValueError:
        return _Plan(spec, problem="the channel's url is not valid")
    if reason := egress.problem(url):
        return _Plan(spec, problem=f"egress refused: {reason}")
    headers: CIMultiDict[str] = CIMultiDict()
    if url.user is not None:
        pair = f"{url.user}:{url.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        url = url.with_user(None)
    for name, value in spec.headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            return _Plan(spec, problem=f"the channel's header {rules.one_line(repr(name), 80)} is not valid")
        if not is_ours(name):
            headers[name] = value
    headers["user-agent"] = USER_AGENT
    # aiohttp rounds time-outs above the threshold to whole seconds; these must stay exact.
    timeout = aiohttp.ClientTimeout(total=spec.timeout / 1000, ceil_threshold=3600)
    return _Plan(spec, url.with_fragment(None), shown, headers, timeout)


def _headers(plan: _Plan, target: Target, delivery: OutgoingDelivery) -> CIMultiDict[str]:
    headers = plan.headers.copy()
    headers.update(cloudevents.binary_headers(target, delivery))
    seconds = delivery.fired // 1000
    id = headers["ce-id"]
    headers[signing.HEADER_ID] = id
    headers[signing.HEADER_TIMESTAMP] = str(seconds)
    if target.secrets:
        headers[signing.HEADER_SIGNATURE] = signing.sign(id, seconds, delivery.body, target.secrets)
    return headers


class Post(NamedTuple):
    """The request of a delivery: POST to `url` with these headers and `body`, within `timeout` seconds."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float


def post_of(target: Target, delivery: OutgoingDelivery, egress: Egress) -> Post:
    """Return the request of a delivery, for callers that send it by other means. ValueError if its channel can never deliver."""
    if not isinstance(target.spec, HttpChannel):
        raise ValueError(f"not an http channel: {target.spec.type}")
    plan = _make_plan(target.spec, egress)
    if plan.problem is not None:
        raise ValueError(plan.problem)
    return Post(str(plan.url), _headers(plan, target, delivery), delivery.body, target.spec.timeout / 1000)


class HttpSender:
    """Sends http deliveries. Never raises for a receiver's behaviour; ValueError for a malformed secret.

    `lookup` resolves names, `new_socket` makes sockets and `tls` replaces the default context: tests replace them.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        lookup: ResolveHost = system_lookup,
        new_socket: Callable[[AddrInfoType], socket.socket] = _new_socket,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.egress = Egress(settings.egress_names, plain=settings.plain_http)
        self._clock: Clock = clock or SystemClock()
        self._lookup, self._new_socket, self._tls = lookup, new_socket, tls
        self._per_host = settings.deliver_concurrency
        self._session: aiohttp.ClientSession | None = None
        self._names: NameLookups | None = None
        self._plans: dict[tuple[str, str], _Plan] = {}

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one POST. If a kept connection turns out to be closed, send a second one at once: the next attempt, with the same id."""
        plan = self._plan(target)
        if plan.problem is not None:
            return Verdict("final", None, plan.problem)
        loop = asyncio.get_running_loop()
        started, began, sent = loop.time(), self._clock.monotonic(), _request(plan, target)
        try:
            return await self._post(plan, sent, _headers(plan, target, delivery), delivery.body, plan.timeout)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            verdict = _verdict_of(error, plan, sent)
            # A receiver may close an idle connection at the moment of the write. aiohttp does not repeat a POST. This one has an id and
            # may arrive twice, and a back-off would make a punctual event late for nothing.
            left = (plan.timeout.total or 0) - (loop.time() - started)
            closed = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError) and not sent.fresh
            if verdict.outcome != "retry" or not closed or isinstance(error, aiohttp.ClientConnectorError) or left <= 0:
                return verdict
        # By the caller's clock, which may differ from this one: it is corrected where the machine's is proven wrong.
        sent_again = delivery.fired + round((self._clock.monotonic() - began) * 1000)
        second = replace(delivery, fired=sent_again, attempt=delivery.attempt + 1)
        first_error, sent = verdict.error or "", _request(plan, target)
        timeout = aiohttp.ClientTimeout(total=left, ceil_threshold=3600)
        try:
            verdict = await self._post(plan, sent, _headers(plan, target, second), second.body, timeout)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            verdict = _verdict_of(error, plan, sent)
        return SecondVerdict.of(verdict, second.fired, first_error)

    async def _post(
        self, plan: _Plan, sent: SentRequest, headers: CIMultiDict[str], body: bytes, timeout: aiohttp.ClientTimeout
    ) -> Verdict:
        SENT.set(sent)
        response = await self._open().post(plan.url, data=body, headers=headers, allow_redirects=False, timeout=timeout)
        status = response.status
        if status < 200:
            response.close()  # 101: whatever the other side speaks from here on, it is not HTTP
        elif not response.content.is_eof():
            await _drain(response)
        return rules.judge(status, response.headers.get("Retry-After"), self._clock.now())

    def _plan(self, target: Target) -> _Plan:
        key = (target.tenant, target.name)
        plan = self._plans.get(key)
        if plan is None or plan.spec is not target.spec:
            if not isinstance(target.spec, HttpChannel):
                raise TypeError(f"not an http channel: {target.spec.type}")
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _make_plan(target.spec, self.egress)
        return plan

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._names = NameLookups(self._lookup)
            connector = AnswerConnector(
                resolver=SafeResolver(self.egress, self._resolve),
                socket_factory=self._guarded_socket,
                # `NameLookups` has a cache. That of aiohttp would make one tenant wait for the look-up that another one began.
                use_dns_cache=False,
                # The scheduler limits deliveries per process, channel and tenant. A smaller limit here would let one tenant's slow endpoint
                # starve another's on the same host.
                limit=0,
                limit_per_host=self._per_host,
                keepalive_timeout=15,
                ssl=self._tls or True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                response_class=ReceiverResponse,
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_SKIPPED,
                auto_decompress=False,
                trust_env=False,
            )
        return self._session

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        assert self._names is not None  # it is opened with the session
        return await self._names.resolve(SENT.get().tenant, host, port)

    def _guarded_socket(self, info: AddrInfoType) -> socket.socket:
        sent = SENT.get()
        self.egress.check(sent.host, str(info[4][0]), plain=sent.plain)
        sent.fresh = True
        return self._new_socket(info)

    async def close(self) -> None:
        """Close the connections. A later `send` opens a new session."""
        session, self._session = self._session, None
        names, self._names = self._names, None
        if session is not None:
            await session.close()
        if names is not None:
            await names.close()


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the rest of the answer within the bounds, so that the connection is free again. Close the connection if more would follow."""
    content = response.content
    try:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                while await content.readany():
                    pass
    finally:
        if not content.is_eof():
            response.close()


def _request(plan: _Plan, target: Target) -> SentRequest:
    return SentRequest(plan.url.raw_host or "", plan.url.scheme == "http", target.tenant)


def _cause(error: BaseException) -> EgressRefused | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, EgressRefused):
            return seen
        seen = getattr(seen, "os_error", None) or seen.__cause__
    return None


def _verdict_of(error: Exception, plan: _Plan, sent: SentRequest) -> Verdict:
    """Return the verdict on a request whose answer could not be read to the end of its head.

    Texts are this module's or the operating system's: no bytes of an answer get into an error.
    """
    if sent.status is not None and 200 <= sent.status < 300:
        # The receiver has accepted the event. The rest of its answer does not matter.
        return Verdict("delivered", sent.status)
    if refused := _cause(error):
        return Verdict("final", None, rules.one_line(f"egress refused: {plan.shown}: {refused}"))
    outcome = "could not be sent"
    if isinstance(error, TimeoutError):
        outcome = f"no answer within {plan.spec.timeout / 1000:g} s"
    elif isinstance(error, aiohttp.ClientConnectorDNSError):
        outcome = "the host's name could not be resolved"
        if isinstance(error.os_error, NameUnresolved):
            outcome = f"{outcome}: {error.os_error}"
    elif isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        message = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else "not valid"
        outcome = f"TLS failure: certificate refused: {message}"
    elif isinstance(error, aiohttp.ClientConnectorSSLError):
        cause = error.os_error
        outcome = f"TLS failure: {getattr(cause, 'reason', None) or 'handshake failed'}"
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        outcome = "the connection was closed before an answer"
    elif isinstance(error, aiohttp.ClientConnectorError):
        outcome = f"could not connect: {_strerror(error)}"
    elif isinstance(error, OSError):
        outcome = f"connection lost: {_strerror(error)}"
    elif isinstance(error, AnswerRefused):
        outcome = str(error)
    elif isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        outcome = "the answer is not valid HTTP"
    elif isinstance(error, aiohttp.InvalidURL | ValueError):
        return Verdict("final", None, rules.one_line(f"{plan.shown}: the request could not be made from the channel's settings"))
    return Verdict("retry", None, rules.one_line(f"{plan.shown}: {outcome}"))


def _strerror(error: OSError) -> str:
    number = error.errno
    return os.strerror(number) if isinstance(number, int) and number > 0 else "no reason given"
