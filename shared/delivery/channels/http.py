"""The http channel: signed CloudEvents by POST, or by the method of an event's target, to addresses that the egress rules allow.

The verdict is the status: the body is read only so that the connection can be used again, for one second and at most 64 KiB with its head.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from aiohappyeyeballs import AddrInfoType

from ...core import long_work, owner_header, signing
from ...core.clock import Clock, SystemClock
from ...core.http1.answer import AnswerReader
from ...core.http1.pool import Place
from ...core.settings import Settings
from ...core.version import BASE
from ...core.web_urls import HostOfUrl, parse_url
from ..egress_guard import Egress
from ..name_lookups import ResolveHost, system_lookup
from . import cloudevents, rules
from .answer_heads import READ_BODY, head_of
from .event_target import BODILESS, apply_target
from .guarded_client import GuardedClient, new_socket
from .model import FINAL, HttpChannel
from .ports import OutgoingDelivery, Target, Verdict

if TYPE_CHECKING:
    from ..client_certificates.store import ClientCertificates
    from ..entra.tokens import EntraTokens
    from .masks import Masks

USER_AGENT = f"tocsin/{BASE}"
_MAX_PLANS = 10_000

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
    return low in _OURS or low.startswith(("ce-", "webhook-", long_work.OUR_HEADERS, owner_header.HEADER))


_TYPED = f"\r\ncontent-type: {cloudevents.CONTENT_TYPE}\r\n".encode()
"""The line that other requests leave out or replace. It begins with the end of the line before, since `x-content-type` is another one."""
_NOWHERE = Place("", 0, False)


@dataclass(slots=True)
class _Plan:
    """The values computed once per channel: where and how to send, or the reason why it can never work."""

    spec: HttpChannel
    problem: str | None = None
    url: str = ""
    shown: str = ""
    """The part of the URL that errors may show."""
    place: Place = _NOWHERE
    headers: dict[str, str] = field(default_factory=dict)
    """Headers. No name occurs twice, not even in another spelling."""
    head: bytes = b""
    """The request line and the headers that all deliveries share."""
    timeout: float = 0.0
    """Seconds for all of an attempt of an event that names none."""
    method: str = "POST"
    own_target: bool = False
    """True if the request goes to a path or query of the event's own."""
    final: frozenset[int] = FINAL
    masks: tuple[tuple[str, ...], Masks] | None = None
    """The masks of kept answers, with the signing secrets that they were made for; made with the first answer that is kept."""


def show(url: HostOfUrl) -> str:
    """Return `scheme://host:port` for errors, which keys see that may not see channels. Many services keep a secret in the path."""
    host = url.raw_host or ""
    return rules.one_line(f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{url.port}")


def resource_of(url: str) -> str:
    """Return path and query of a URL as they are written: a signature that covers them holds only for the very same bytes."""
    rest = url.partition("://")[2].partition("#")[0]
    host = rest.partition("/")[0].partition("?")[0]
    found = rest.removeprefix(host)
    return found if found.startswith("/") else f"/{found}"


def problem_of(spec: HttpChannel, egress: Egress) -> str | None:
    """Return the reason why a channel with these settings can never deliver, or None. For code that stores channels."""
    return _make_plan(spec, egress).problem


def _make_plan(spec: HttpChannel, egress: Egress, shared: Mapping[str, str] = {}) -> _Plan:
    """Return the plan of a channel. shared: headers of all its deliveries besides its own."""
    try:
        url = parse_url(spec.url)
        shown = show(url)
    except ValueError:
        return _Plan(spec, problem="the channel's url is not valid")
    if reason := egress.problem(url):
        return _Plan(spec, problem=f"egress refused: {reason}")
    if spec.entra_audience is not None:
        from ..entra.requests import channel_faults

        for pointer, detail in channel_faults(spec.entra_audience, url, spec.headers):
            return _Plan(spec, problem=rules.one_line(f"the channel's {pointer.lstrip('/')} {detail}"))
    if spec.client_certificate is not None and url.scheme != "https":
        return _Plan(spec, problem="the channel has a client certificate, which needs an https url")
    headers: dict[str, str] = {}
    if url.user is not None:
        pair = f"{url.user}:{url.password or ''}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    for name, value in spec.headers.items():
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            return _Plan(spec, problem=f"the channel's header {rules.one_line(repr(name), 80)} is not valid")
        if not is_ours(name):
            _put(headers, name, value)
    headers["user-agent"] = USER_AGENT
    headers.update(shared)
    host, port, target = url.raw_host, url.port, resource_of(spec.url)
    if host is None or port is None or not _TARGET.fullmatch(target):
        return _Plan(spec, problem="the channel's url is not valid")
    lines = [f"POST {target} HTTP/1.1", f"host: {url.host_header}", *[f"{name}: {value}" for name, value in headers.items()]]
    head = "\r\n".join([*lines, ""]).encode()
    place = Place(host, port, url.scheme == "https")
    whole = f"{url.scheme}://{url.host_header}{target}"
    final = FINAL if spec.final_statuses is None else frozenset(spec.final_statuses)
    return _Plan(spec, None, whole, shown, place, headers, head, spec.timeout / 1000, final=final)


def _put(headers: dict[str, str], name: str, value: str) -> None:
    """Set a header, in place of one with the same name in another spelling."""
    for other in [each for each in headers if each.lower() == name.lower()]:
        del headers[other]
    headers[name] = value


def _plan_for(plan: _Plan, delivery: OutgoingDelivery) -> _Plan:
    """Return the plan of one delivery. The place to connect to stays the channel's."""
    if delivery.event_target is not None:
        plan = _aimed(plan, delivery.event_target, has_body=bool(delivery.body))
    if plan.problem is not None:
        return plan
    if not delivery.body and plan.method in BODILESS:
        return _typed(plan, None)
    return plan if delivery.content_type == cloudevents.CONTENT_TYPE else _typed(plan, delivery.content_type)


def _typed(plan: _Plan, content_type: str | None) -> _Plan:
    """Return the plan of requests with this content type; None: without one."""
    headers = plan.headers.copy()
    if content_type is None:
        headers.pop("content-type", None)
        return replace(plan, headers=headers, head=plan.head.replace(_TYPED, b"\r\n", 1))
    headers["content-type"] = content_type
    return replace(plan, headers=headers, head=plan.head.replace(_TYPED, f"\r\ncontent-type: {content_type}\r\n".encode(), 1))


def _aimed(plan: _Plan, event_target: str, *, has_body: bool) -> _Plan:
    """Return the plan of one event with a target of its own."""
    if plan.problem is not None:
        return plan
    line, _, shared = plan.head.partition(b"\r\n")
    resource = line.split(b" ")[1].decode()
    found = apply_target(event_target, plan.spec, resource)
    if isinstance(found, str):
        return replace(plan, problem=rules.one_line(found))
    if not _TARGET.fullmatch(found.resource) or (has_body and found.method == "GET"):
        return replace(plan, problem="the event's target is not valid")
    headers = plan.headers.copy()
    for name, value in found.headers.items():
        _put(headers, name, value)
    added = dict(found.headers)
    if found.method == "GET" and "cache-control" not in map(str.lower, headers):
        # A cache on the way must not answer in place of the receiver.
        headers["cache-control"] = added["cache-control"] = "no-cache"
    lines = "".join([f"{name}: {value}\r\n" for name, value in added.items()])
    head = b"%b %b HTTP/1.1\r\n%b%b" % (found.method.encode(), found.resource.encode(), shared, lines.encode())
    url = f"{plan.url[: plan.url.index('/', plan.url.index('://') + 3)]}{found.resource}"
    own = found.resource != resource
    return replace(plan, url=url, headers=headers, head=head, method=found.method, own_target=own)


def _delivery_lines(target: Target, delivery: OutgoingDelivery) -> str:
    """Return the headers that belong to one delivery, as lines of its request without the last line break."""
    seconds = delivery.fired // 1000
    id = cloudevents.header_value(delivery.id)
    lines = f"{cloudevents.delivery_lines(id, delivery)}\r\n{signing.HEADER_ID}: {id}\r\n{signing.HEADER_TIMESTAMP}: {seconds}"
    if target.secrets:
        lines += f"\r\n{signing.HEADER_SIGNATURE}: {signing.sign(id, seconds, delivery.body, target.secrets)}"
    if (owner := delivery.owner) is not None and target.secrets:
        claim = owner_header.OwnerClaim(owner.fleet, owner.generation, owner.partition, owner.epoch, id)
        lines += f"\r\n{owner_header.HEADER}: {owner_header.sign_owner(claim, target.secrets)}"
    if (offer := delivery.completion) is not None:
        lines += f"\r\n{long_work.HEADER_URL}: {offer.url(delivery.attempt)}\r\n{long_work.HEADER_TOKEN}: {offer.token(delivery.attempt)}"
        lines += f"\r\n{long_work.HEADER_WITHIN}: {offer.within // 1000}"
    return lines


def _delivery_headers(target: Target, delivery: OutgoingDelivery) -> dict[str, str]:
    """Return the headers that belong to one delivery, by name."""
    return cloudevents.headers_of(_delivery_lines(target, delivery))


def _proofs(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of a delivery's headers with which somebody else could repeat it, or act for its receiver."""
    for name in (signing.HEADER_SIGNATURE, owner_header.HEADER, long_work.HEADER_TOKEN):
        if value := headers.get(name):
            yield value
            yield from (part[3:] for part in value.split(" ") if part[:3] in ("v1,", "v1="))


def _request(plan: _Plan, target: Target, delivery: OutgoingDelivery, bearer: str) -> bytes:
    """Return the bytes of the request of one delivery. bearer: its token of Entra, '' for none."""
    own = _delivery_lines(target, delivery)
    if bearer:
        own = f"{own}\r\nauthorization: Bearer {bearer}"
    if not delivery.body and plan.method in BODILESS:
        return b"%b%b\r\n\r\n" % (plan.head, own.encode())
    return b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (plan.head, own.encode(), len(delivery.body), delivery.body)


class Post(NamedTuple):
    """The request of a delivery: `method` to `url` with these headers and `body`, within `timeout` seconds."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float
    method: str = "POST"
    final: frozenset[int] = FINAL
    own_target: bool = False
    """See `rules.judge`."""


def _seconds(plan: _Plan, delivery: OutgoingDelivery) -> float:
    """Return the seconds for all of an attempt."""
    return plan.timeout if delivery.timeout is None else delivery.timeout / 1000


def post_of(target: Target, delivery: OutgoingDelivery, egress: Egress) -> Post:
    """Return the request of a delivery, for callers that send it by other means. ValueError if its channel can never deliver."""
    if not isinstance(target.spec, HttpChannel):
        raise ValueError(f"not an http channel: {target.spec.type}")
    plan = _make_plan(target.spec, egress, cloudevents.channel_headers(target))
    plan = _plan_for(plan, delivery)
    if plan.problem is not None:
        raise ValueError(plan.problem)
    if plan.spec.entra_audience is not None:
        raise ValueError("deliveries of the channel carry a token of Entra, which the service alone can get")
    headers = plan.headers.copy()
    headers.update(_delivery_headers(target, delivery))
    return Post(plan.url, headers, delivery.body, _seconds(plan, delivery), plan.method, plan.final, plan.own_target)


@dataclass(slots=True)
class _HttpExchange:
    """See `Exchange`."""

    plan: _Plan
    target: Target
    clock: Clock
    keeps_answers: bool
    bearer: str = field(default="", repr=False)
    """The token of Entra, if the channel asks for one."""
    seconds: float = 0.0
    """See `Exchange`."""
    place: Place = _NOWHERE
    """See `Exchange`."""

    def __post_init__(self) -> None:
        self.place = self.plan.place

    @property
    def tenant(self) -> str:
        return self.target.tenant

    @property
    def shown(self) -> str:
        return self.plan.shown

    def request(self, delivery: OutgoingDelivery) -> bytes:
        return _request(self.plan, self.target, delivery, self.bearer)

    def reader(self) -> AnswerReader | None:
        kept = self.plan.spec.answers
        return None if kept == "none" or not self.keeps_answers else AnswerReader(READ_BODY, keep_accepted=kept == "all")

    def judge(self, answer: AnswerReader, delivery: OutgoingDelivery) -> Verdict:
        assert answer.status is not None  # the head was read
        plan, secrets, offer = self.plan, self.target.secrets, delivery.completion
        # Only `Retry-After` needs the time, and most answers have none: reading the clock costs time itself.
        now = self.clock.now() if answer.retry_after is not None else 0
        verdict = rules.judge(
            answer.status,
            answer.retry_after,
            now,
            delivery.owner,
            final=plan.final,
            never=answer.never,
            own_target=plan.own_target,
        )
        if answer.later and offer is not None:
            verdict = verdict._replace(later=True)
        if not answer.fields:
            return verdict
        from .masks import masks_of, with_jwt, with_values

        if plan.masks is None or plan.masks[0] != secrets:
            plan.masks = secrets, masks_of(plan.spec, secrets)
        masks = with_values(plan.masks[1], _proofs(_delivery_headers(self.target, delivery)))
        if self.bearer:
            masks = with_jwt(masks, self.bearer)
        return verdict._replace(answer=head_of(answer, masks, fields=plan.spec.answer_headers))


class HttpSender:
    """Sends http deliveries. Never raises for a receiver's behaviour; ValueError for a malformed secret.

    `lookup` resolves names, `new_socket` makes sockets, `tls` replaces the default context, and `certificates` are the client
    certificates of channels: tests replace them.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        *,
        lookup: ResolveHost = system_lookup,
        new_socket: Callable[[AddrInfoType], socket.socket] = new_socket,
        tls: ssl.SSLContext | None = None,
        tokens: EntraTokens | None = None,
        certificates: ClientCertificates | None = None,
    ) -> None:
        """tokens: those of Entra, by default of the identity that the settings name. certificates: by default those that they list."""
        self.egress = Egress(settings.egress_names, plain=settings.plain_http)
        self._clock: Clock = clock or SystemClock()
        self._keeps_answers = settings.keep_answers
        self._tokens = tokens
        if tokens is None and settings.token_client_id is not None:
            from ..entra.tokens import open_tokens

            self._tokens = open_tokens(settings, self._clock)
        self._client = GuardedClient(self.egress, self._clock, settings.deliver_concurrency, lookup=lookup, new_socket=new_socket, tls=tls)
        self._settings = settings
        if certificates is not None:
            self._certificates = certificates
        self._plans: dict[tuple[str, str, str], _Plan] = {}
        """By tenant, channel and URL: a fleet channel has one for each server."""

    @cached_property
    def _certificates(self) -> ClientCertificates:
        """The client certificates; imported with the first channel that has one."""
        from ..client_certificates.store import ClientCertificates

        return ClientCertificates.from_settings(self._settings, self._clock)

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one request. If a kept connection turns out to be closed, send a second one at once: the next attempt, with the same id."""
        plan = _plan_for(self._plan(target), delivery)
        if plan.problem is not None:
            return Verdict("final", None, plan.problem)
        exchange = _HttpExchange(plan, target, self._clock, self._keeps_answers, seconds=_seconds(plan, delivery))
        fault = None
        if plan.spec.client_certificate is not None:
            fault = await self._identify(exchange, plan.spec.client_certificate)
        if fault is None and plan.spec.entra_audience is not None:
            fault = await self._authorize(exchange, plan.spec.entra_audience)
        if fault is not None:
            # Tried again: it may be listed, renewed or read later, and no event should die of a certificate that expired.
            return Verdict("retry", None, rules.one_line(f"{plan.shown}: {fault}"))
        return await self._client.send(exchange, delivery)

    async def _authorize(self, exchange: _HttpExchange, audience: str) -> str | None:
        """Give a delivery its token; return the reason why there is none. The wait for it is a part of the delivery's time."""
        from ..entra.requests import NotSent, token_for

        loop, seconds = asyncio.get_running_loop(), exchange.seconds
        began, place = loop.time(), (exchange.place.host, exchange.place.port)
        try:
            exchange.bearer = await token_for(self._tokens, exchange.target.audiences, audience, place, began + seconds)
        except NotSent as cause:
            return str(cause)
        exchange.seconds = max(0.1, round(seconds - (loop.time() - began), 1))
        return None

    async def _identify(self, exchange: _HttpExchange, certificate: str) -> str | None:
        """Give a delivery the client certificate of its tenant; return the reason why there is none. The wait for it is a part of the
        delivery's time."""
        from ..client_certificates.sources import CertificateFault

        loop, seconds = asyncio.get_running_loop(), exchange.seconds
        began = loop.time()
        try:
            async with asyncio.timeout(seconds):
                exchange.place = exchange.place._replace(context=await self._certificates.tls(exchange.target.identity, certificate))
        except (CertificateFault, TimeoutError) as error:
            return f"client certificate {certificate}: {str(error) or f'it could not be read within {seconds:g} s'}"
        exchange.seconds = max(0.1, round(seconds - (loop.time() - began), 1))
        return None

    def _plan(self, target: Target) -> _Plan:
        if not isinstance(target.spec, HttpChannel):
            raise TypeError(f"not an http channel: {target.spec.type}")
        key = (target.tenant, target.name, target.spec.url)
        plan = self._plans.get(key)
        if plan is None or plan.spec is not target.spec:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _make_plan(target.spec, self.egress, cloudevents.channel_headers(target))
        return plan

    async def close(self) -> None:
        """Close the connections. A later `send` opens a new pool."""
        if self._tokens is not None:
            await self._tokens.close()
        await self._client.close()
        if "_certificates" in self.__dict__:
            await self._certificates.close()
