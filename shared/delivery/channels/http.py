"""The http channel: signed CloudEvents by POST, or by the method of an event's target, to addresses that the egress rules allow.

One pool of connections per process, made in the running loop when first needed. No redirects, proxies, cookies or decompression. The
verdict is the status: the body is read only so that the connection can be used again, for one second and at most 64 KiB with its head.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from aiohappyeyeballs import AddrInfoType
from multidict import CIMultiDict
from yarl import URL

from ...core import long_work, signing
from ...core.clock import Clock, SystemClock
from ...core.http1.answer import AnswerReader
from ...core.http1.connection import Connection, ConnectionLost, ConnectionPolicy, NotConnected
from ...core.http1.head import AnswerRefused
from ...core.http1.pool import ConnectionPool, Place
from ...core.settings import Settings
from ..egress_guard import Egress, EgressRefused, SafeResolver
from ..name_lookups import NameLookups, NameUnresolved, ResolveHost, system_lookup
from . import cloudevents, rules
from .answer_heads import READ_BODY, Masks, head_of, masks_of, with_token
from .event_target import apply_target
from .model import HttpChannel
from .ports import OutgoingDelivery, SecondVerdict, Target, Verdict

USER_AGENT = "tocsin/0.1"
MAX_ANSWER_SECONDS = 1.0
"""Seconds from the end of an answer's head for which its body is read."""
KEPT_SECONDS = 15.0
"""Seconds for which an unused connection is kept."""
_MAX_PLANS = 10_000
_MAX_SHOWN = 200

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e\u0080-\uffff]{0,4096}")
_TARGET = re.compile(r"/[\x21-\x7e]*")
_OURS = frozenset(
    (
        *("content-type", "user-agent", "traceparent", "accept-encoding"),
        # The connection's own headers, which the client library must control: a second length or encoding would split the request.
        *("host", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "te", "trailer"),
        *("upgrade", "expect", "proxy-authorization", "proxy-connection", "proxy-authenticate", "http2-settings"),
    )
)


def is_ours(name: str) -> bool:
    """Return True for a header that a channel's own `headers` cannot set; such entries are left out."""
    low = name.lower()
    return low in _OURS or low.startswith(("ce-", "webhook-", long_work.OUR_HEADERS))


_NOWHERE = Place("", 0, False)


@dataclass(slots=True)
class _Plan:
    """The values computed once per channel: where and how to send, or the reason why it can never work."""

    spec: HttpChannel
    problem: str | None = None
    url: str = ""
    shown: str = ""
    """The URL as errors may show it."""
    place: Place = _NOWHERE
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    head: bytes = b""
    """The request line and the headers that all deliveries share."""
    timeout: float = 0.0
    """Seconds for all of an attempt."""
    method: str = "POST"
    masks: tuple[tuple[str, ...], Masks] | None = None
    """The masks of kept answers, with the signing secrets that they were made for; made with the first answer that is kept."""


class NameFailed(OSError):
    """Raised if a name has no address; its cause says why."""


def _new_socket(info: AddrInfoType) -> socket.socket:
    return socket.socket(info[0], info[1], info[2])


def show(url: URL) -> str:
    """Return `scheme://host:port/path` for errors: no user, no query, no fragment, cut to 200 characters."""
    host = url.raw_host or ""
    return rules.one_line(f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port}{url.raw_path}", _MAX_SHOWN)


def problem_of(spec: HttpChannel, egress: Egress) -> str | None:
    """Return the reason why a channel with these settings can never deliver, or None. For code that stores channels."""
    return _make_plan(spec, egress).problem


def _make_plan(spec: HttpChannel, egress: Egress, shared: Mapping[str, str] = {}) -> _Plan:
    """Return the plan of a channel. shared: headers of all its deliveries besides its own."""
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
    headers.update(shared)
    host, port, target = url.raw_host, url.port, url.raw_path_qs
    if host is None or port is None or not _TARGET.fullmatch(target):
        return _Plan(spec, problem="the channel's url is not valid")
    lines = [f"POST {target} HTTP/1.1", f"host: {url.host_port_subcomponent}", *[f"{name}: {value}" for name, value in headers.items()]]
    head = "\r\n".join([*lines, ""]).encode()
    place = Place(host, port, url.scheme == "https")
    return _Plan(spec, None, str(url.with_fragment(None)), shown, place, headers, head, spec.timeout / 1000)


def _plan_for(plan: _Plan, event_target: str) -> _Plan:
    """Return the plan of one event with a target of its own. The place to connect to stays the channel's."""
    if plan.problem is not None:
        return plan
    line, _, shared = plan.head.partition(b"\r\n")
    found = apply_target(event_target, plan.spec, line.split(b" ")[1].decode())
    if isinstance(found, str):
        return replace(plan, problem=rules.one_line(found))
    if not _TARGET.fullmatch(found.resource):
        return replace(plan, problem="the event's target is not valid")
    own = "".join([f"{name}: {value}\r\n" for name, value in found.headers.items()])
    head = b"%b %b HTTP/1.1\r\n%b%b" % (found.method.encode(), found.resource.encode(), shared, own.encode())
    headers = plan.headers.copy()
    headers.update(found.headers)
    url = f"{plan.url[: plan.url.index('/', plan.url.index('://') + 3)]}{found.resource}"
    path = found.resource.partition("?")[0]
    shown = rules.one_line(f"{plan.shown[: plan.shown.index('/', plan.shown.index('://') + 3)]}{path}", _MAX_SHOWN)
    return replace(plan, url=url, shown=shown, headers=headers, head=head, method=found.method)


def _delivery_headers(target: Target, delivery: OutgoingDelivery) -> dict[str, str]:
    """Return the headers that belong to one delivery."""
    headers = cloudevents.delivery_headers(delivery)
    seconds = delivery.fired // 1000
    id = headers["ce-id"]
    headers[signing.HEADER_ID] = id
    headers[signing.HEADER_TIMESTAMP] = str(seconds)
    if target.secrets:
        headers[signing.HEADER_SIGNATURE] = signing.sign(id, seconds, delivery.body, target.secrets)
    if (offer := delivery.completion) is not None:
        headers[long_work.HEADER_URL] = offer.url(delivery.attempt)
        headers[long_work.HEADER_TOKEN] = offer.token(delivery.attempt)
        headers[long_work.HEADER_WITHIN] = str(offer.within // 1000)
    return headers


def _request(plan: _Plan, target: Target, delivery: OutgoingDelivery) -> bytes:
    """Return the bytes of the request of one delivery."""
    own = "".join([f"{name}: {value}\r\n" for name, value in _delivery_headers(target, delivery).items()])
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (plan.head, own.encode(), len(delivery.body), delivery.body)


class Post(NamedTuple):
    """The request of a delivery: `method` to `url` with these headers and `body`, within `timeout` seconds."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float
    method: str = "POST"


def post_of(target: Target, delivery: OutgoingDelivery, egress: Egress) -> Post:
    """Return the request of a delivery, for callers that send it by other means. ValueError if its channel can never deliver."""
    if not isinstance(target.spec, HttpChannel):
        raise ValueError(f"not an http channel: {target.spec.type}")
    plan = _make_plan(target.spec, egress, cloudevents.channel_headers(target))
    if delivery.event_target is not None:
        plan = _plan_for(plan, delivery.event_target)
    if plan.problem is not None:
        raise ValueError(plan.problem)
    headers = plan.headers.copy()
    headers.update(_delivery_headers(target, delivery))
    return Post(plan.url, headers, delivery.body, plan.timeout, plan.method)


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
        self._keeps_answers = settings.keep_answers
        self._pool: ConnectionPool[AnswerReader] | None = None
        self._names: NameLookups | None = None
        self._plans: dict[tuple[str, str], _Plan] = {}

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one request. If a kept connection turns out to be closed, send a second one at once: the next attempt, with the same id."""
        plan = self._plan(target)
        if delivery.event_target is not None:
            plan = _plan_for(plan, delivery.event_target)
        if plan.problem is not None:
            return Verdict("final", None, plan.problem)
        pool = self._pool or self._open()
        ends_at, began = pool.loop.time() + plan.timeout, self._clock.monotonic()
        connection = pool.take(plan.place)
        try:
            request = _request(plan, target, delivery)
            if connection is None:
                connection = await self._connect(plan, target, ends_at)
            return await self._post(plan, target, delivery, connection, request, ends_at)
        except (AnswerRefused, OSError, ValueError) as error:
            verdict = _verdict_of(error, plan, connection, delivery)
            # A receiver may close an idle connection at the moment of the write. This POST has an id and may arrive twice, and a back-off
            # would make a punctual event late for nothing. An answer that has begun shows that the receiver was there.
            closed = isinstance(error, ConnectionLost) and connection is not None and connection.used and not connection.answer.began
            if verdict.outcome != "retry" or not closed or pool.loop.time() >= ends_at:
                return verdict
        # By the caller's clock, which may differ from this one: it is corrected where the machine's is proven wrong.
        sent_again = delivery.fired + round((self._clock.monotonic() - began) * 1000)
        second = replace(delivery, fired=sent_again, attempt=delivery.attempt + 1)
        first_error, connection = verdict.error or "", None
        try:
            # Other kept connections may have been closed with the first one.
            connection = await self._connect(plan, target, ends_at)
            verdict = await self._post(plan, target, second, connection, _request(plan, target, second), ends_at)
        except (AnswerRefused, OSError, ValueError) as error:
            verdict = _verdict_of(error, plan, connection, second)
        return SecondVerdict.of(verdict, second.fired, first_error)

    async def _post(
        self, plan: _Plan, target: Target, delivery: OutgoingDelivery, connection: Connection[AnswerReader], request: bytes, ends_at: float
    ) -> Verdict:
        kept = plan.spec.answers
        reader = None if kept == "none" or not self._keeps_answers else AnswerReader(READ_BODY, keep_accepted=kept == "all")
        waiting = connection.post(request, ends_at, reader)
        try:
            answer = await waiting
        except asyncio.CancelledError:
            connection.give_up(waiting)
            raise
        assert answer.status is not None  # the head was read
        verdict = rules.judge(answer.status, answer.retry_after, self._clock.now())
        offer = delivery.completion
        if answer.later and offer is not None:
            verdict = verdict._replace(later=True)
        if not answer.fields:
            return verdict
        if plan.masks is None or plan.masks[0] != target.secrets:
            plan.masks = target.secrets, masks_of(plan.spec, target.secrets)
        masks = plan.masks[1] if offer is None else with_token(plan.masks[1], offer.token(delivery.attempt))
        return verdict._replace(answer=head_of(answer, masks, fields=plan.spec.answer_headers))

    def _plan(self, target: Target) -> _Plan:
        key = (target.tenant, target.name)
        plan = self._plans.get(key)
        if plan is None or plan.spec is not target.spec:
            if not isinstance(target.spec, HttpChannel):
                raise TypeError(f"not an http channel: {target.spec.type}")
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _make_plan(target.spec, self.egress, cloudevents.channel_headers(target))
        return plan

    def _open(self) -> ConnectionPool[AnswerReader]:
        self._names = NameLookups(self._lookup)
        # The scheduler limits deliveries per process, channel and tenant. A smaller limit here would let one tenant's slow endpoint starve
        # another's on the same host.
        policy = ConnectionPolicy(AnswerReader, KEPT_SECONDS, MAX_ANSWER_SECONDS)
        self._pool = ConnectionPool(self._guarded_socket, policy, most=self._per_host, tls=self._tls)
        return self._pool

    async def _connect(self, plan: _Plan, target: Target, ends_at: float) -> Connection[AnswerReader]:
        """Return a connection. Raises TimeoutError, EgressRefused, NameFailed, NotConnected, ConnectionLost, ssl.SSLError."""
        pool, names = self._pool or self._open(), self._names
        assert names is not None  # they are opened with the pool

        async def resolve(host: str, port: int) -> Sequence[AddrInfoType]:
            resolver = SafeResolver(self.egress, lambda host, port: names.resolve(target.tenant, host, port))
            try:
                return await resolver.resolve(host, port)
            except EgressRefused:
                raise
            except OSError as error:
                raise NameFailed() from error

        return await pool.make(plan.place, resolve, ends_at)

    def _guarded_socket(self, place: Place, info: AddrInfoType) -> socket.socket:
        self.egress.check(place.host, str(info[4][0]), plain=not place.tls)
        return self._new_socket(info)

    async def close(self) -> None:
        """Close the connections. A later `send` opens a new pool."""
        pool, self._pool = self._pool, None
        names, self._names = self._names, None
        if pool is not None:
            await pool.close()
        if names is not None:
            await names.close()


def _verdict_of(error: Exception, plan: _Plan, connection: Connection[AnswerReader] | None, delivery: OutgoingDelivery) -> Verdict:
    """Return the verdict on a request whose answer could not be read to the end of its head.

    Texts are this module's or the operating system's: no bytes of an answer get into an error.
    """
    status = connection.answer.status if connection is not None else None
    if status is not None and 200 <= status < 300:
        # The receiver has accepted the event. The rest of its answer does not matter.
        # A 202 may have said that the work goes on: the receiver completes the event then, and silence is a failed attempt otherwise.
        return Verdict("delivered", status, later=status == 202 and delivery.completion is not None)
    if isinstance(error, EgressRefused):
        return Verdict("final", None, rules.one_line(f"egress refused: {plan.shown}: {error}"))
    outcome = "could not be sent"
    if isinstance(error, TimeoutError):
        outcome = f"no answer within {plan.spec.timeout / 1000:g} s"
    elif isinstance(error, NameFailed):
        outcome = "the host's name could not be resolved"
        if isinstance(error.__cause__, NameUnresolved):
            outcome = f"{outcome}: {error.__cause__}"
    elif isinstance(error, ssl.SSLCertVerificationError):
        outcome = f"TLS failure: certificate refused: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        outcome = f"TLS failure: {error.reason or 'handshake failed'}"
    elif isinstance(error, ConnectionLost) and error.errno is None:
        outcome = "the connection was closed before an answer"
    elif isinstance(error, NotConnected):
        outcome = f"could not connect: {_strerror(error)}"
    elif isinstance(error, OSError):
        outcome = f"connection lost: {_strerror(error)}"
    elif isinstance(error, AnswerRefused):
        outcome = str(error)
    elif isinstance(error, ValueError):
        return Verdict("final", None, rules.one_line(f"{plan.shown}: the request could not be made from the channel's settings"))
    return Verdict("retry", None, rules.one_line(f"{plan.shown}: {outcome}"))


def _strerror(error: OSError) -> str:
    number = error.errno
    return os.strerror(number) if isinstance(number, int) and number > 0 else "no reason given"
