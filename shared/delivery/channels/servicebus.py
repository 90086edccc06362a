"""The servicebus channel: one message per event into a queue or topic of Azure Service Bus, through its REST interface.

Source: https://learn.microsoft.com/rest/api/servicebus/send-message-to-queue. The message is a CloudEvent in binary mode (CloudEvents AMQP
binding): the body is the payload, the attributes are application properties `cloudEvents_...`. The message's id is the event's, which the
namespace's duplicate detection compares.

The SDK is not used: it speaks AMQP, takes 0.4 s of CPU and 19 MiB to import, and keeps a connection of its own to each namespace. A process
of Flex Consumption, which lives for minutes, would pay that each time. Each message has a request of its own: the messages of a batch share
one verdict, must share one session or partition, and carry no content type.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from ...core.clock import Clock, SystemClock, to_text
from ...core.http1.answer import AnswerReader
from ...core.http1.pool import Place
from ...core.settings import Settings
from ..egress_guard import Egress
from ..identity_tokens import IdentityTokens, NoIdentityToken, TokenSource
from ..listed_tenants import TenantIdentity
from ..service_bus import SECONDS, parse_grants, problem_of, sign_access, split_host
from . import cloudevents, rules
from .guarded_client import Client, GuardedClient
from .model import MAX_BUS_PAYLOAD, ServiceBusChannel
from .ports import OutgoingDelivery, Target, Verdict

SCOPE = "https://servicebus.azure.net/.default"
TIMEOUT = 15.0
"""Time limit of one delivery in seconds, including the token and the connection."""
MAX_MESSAGE_ID = 128
"""Characters of a message's id."""
_MAX_PLANS = 10_000
_READ_BODY = 4096
_CODE = re.compile(rb"(?:SubCode=|<Detail>)\s*([45]\d{4})\b")
"""The service's own number of an error, such as 40103."""

_NOWHERE = Place("", 0, False)


@dataclass(slots=True)
class _Plan:
    """Values that are computed once for a channel, and its present signature."""

    spec: ServiceBusChannel
    problem: str | None = None
    place: Place = _NOWHERE
    shown: str = ""
    head: str = ""
    resource: str = ""
    """The address that a signature permits: of the queue or topic."""
    signature: str = ""
    """The value of `Authorization`, if the channel has a key."""
    until: int = 0
    """Unix time in seconds until which the signature is used."""


def _make_plan(target: Target, spec: ServiceBusChannel, egress: Egress) -> _Plan:
    if problem := problem_of(target.identity, spec.namespace, egress, keyed=spec.key is not None):
        return _Plan(spec, problem=f"the channel's namespace {problem}")
    host, port = split_host(spec.namespace)
    resource = f"https://{spec.namespace.lower()}/{spec.entity}"
    head = (
        f"POST /{spec.entity}/messages HTTP/1.1\r\n"
        f"host: {spec.namespace.lower()}\r\n"
        # The scheduler repeats deliveries; the gateway must not do it too, beyond the time limit.
        "x-ms-retrypolicy: NoRetry\r\n"
        f'cloudEvents_specversion: "{cloudevents.SPEC_VERSION}"\r\n'
        f'cloudEvents_type: "{cloudevents.TYPE}"\r\n'
        f'cloudEvents_source: "{cloudevents.source(target)}"\r\n'
    )
    return _Plan(spec, None, Place(host, port, True), rules.one_line(resource, 200), head, resource)


def message_id(event_id: str) -> str:
    """Return the id of an event's messages: the event's own, or a digest of one that is longer than Service Bus takes."""
    if len(event_id) <= MAX_MESSAGE_ID:
        return event_id
    return f"sha256-{hashlib.sha256(event_id.encode()).hexdigest()}"


def broker_properties(spec: ServiceBusChannel, delivery: OutgoingDelivery) -> dict[str, Any]:
    """Return the message's own properties, as `BrokerProperties` has them."""
    found: dict[str, Any] = {"MessageId": message_id(delivery.id)}
    if spec.sessions:
        found["SessionId"] = message_id(delivery.id) if delivery.ordering_key is None else delivery.ordering_key
    if spec.subject is not None:
        found["Label"] = spec.subject
    if spec.time_to_live is not None:
        found["TimeToLive"] = -(-spec.time_to_live // 1000)
    return found


@dataclass(slots=True)
class _BusExchange:
    """See `Exchange`."""

    tenant: str
    plan: _Plan
    authorization: str
    clock: Clock

    @property
    def place(self) -> Place:
        return self.plan.place

    @property
    def shown(self) -> str:
        return self.plan.shown

    @property
    def seconds(self) -> float:
        return TIMEOUT

    def request(self, delivery: OutgoingDelivery) -> bytes:
        due = to_text(delivery.due)
        lines = [
            # ASCII: a header carries nothing else.
            f"BrokerProperties: {json.dumps(broker_properties(self.plan.spec, delivery))}",
            f"Authorization: {self.authorization}",
            # Texts stand in quotes, numbers do not.
            f'cloudEvents_id: "{cloudevents.header_value(delivery.id)}"',
            f'cloudEvents_time: "{due}"',
            f'cloudEvents_tocsindue: "{due}"',
            f'cloudEvents_tocsinfired: "{to_text(delivery.fired)}"',
            f"cloudEvents_tocsinlatems: {delivery.late_ms}",
            f"cloudEvents_tocsinattempt: {delivery.attempt}",
        ]
        if delivery.traceparent is not None:
            lines.append(f'cloudEvents_traceparent: "{cloudevents.header_value(delivery.traceparent)}"')
        lines.append(f"content-type: {delivery.content_type}")
        body = delivery.body if delivery.content_type != cloudevents.CONTENT_TYPE else delivery.body or b"null"
        own = "\r\n".join(lines)
        return f"{self.plan.head}{own}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    def reader(self) -> AnswerReader | None:
        return AnswerReader(_READ_BODY)

    def judge(self, answer: AnswerReader, delivery: OutgoingDelivery) -> Verdict:
        assert answer.status is not None  # the head was read
        found = _CODE.search(answer.kept)
        code = int(found[1]) if found else None
        return judge(answer.status, code, answer.retry_after, self.clock.now(), keyed=self.plan.spec.key is not None)


def judge(status: int, code: int | None, retry_after: str | None, now: int, *, keyed: bool) -> Verdict:
    """Return the verdict on an answer. code: the service's own number of the error, if it gave one.

    A missing role, key, queue or topic is tried again, because it may still be made: a new role assignment takes minutes to work.
    """
    why, outcome = None, "retry"
    if status == 401:
        why = "the channel's key is refused" if keyed else "the identity lacks the role Azure Service Bus Data Sender there"
    elif status == 403:
        who = "the channel's key" if keyed else "the identity"
        why = f"the queue or topic is full or disabled, or {who} may not send to it"
    elif status in (404, 410):
        why = "no such queue or topic"
    elif status == 400:
        why, outcome = (
            "Service Bus refuses the message; a queue with sessions needs a channel with sessions, and only such a queue",
            "final",
        )
    elif status == 413:
        why, outcome = "the message is larger than the queue or topic takes", "final"
    if why is None:
        return rules.judge(status, retry_after, now)
    number = f" ({code})" if code is not None else ""
    error = f"answered {status}{number}: {why}"
    return Verdict("final" if outcome == "final" else "retry", status, error, rules.retry_after(retry_after, now))


class ServiceBusSender:
    """Sends servicebus deliveries. `client` and `tokens` are replaced in tests; `close` closes them."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, *, client: Client | None = None, tokens: TokenSource | None = None
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._egress = Egress(settings.egress_names, plain=False, namespaces=parse_grants(settings))
        self._client: Client = client or GuardedClient(self._egress, self._clock, settings.deliver_concurrency)
        self._tokens: TokenSource = tokens or IdentityTokens(SCOPE, settings.client_id, self._clock)
        self._plans: dict[tuple[TenantIdentity, str], _Plan] = {}

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Send one message. A missing queue, role or key is tried again, because it may still be made."""
        plan = self._plan(target)
        if plan.problem is not None:
            return Verdict("final", None, plan.problem)
        if len(delivery.body) > MAX_BUS_PAYLOAD:
            text = f"the payload is {len(delivery.body)} bytes; a message of Service Bus takes {MAX_BUS_PAYLOAD} beside its properties"
            return Verdict("final", None, text)
        try:
            async with asyncio.timeout(TIMEOUT):
                authorization = await self._authorization(plan)
        except NoIdentityToken as error:
            return Verdict("retry", None, f"service bus: no token for the identity ({error})")
        except TimeoutError:
            return Verdict("retry", None, f"service bus: no token for the identity within {TIMEOUT:g} s")
        verdict = await self._client.send(_BusExchange(target.tenant, plan, authorization, self._clock), delivery)
        if verdict.status == 401 and plan.spec.key is None:
            self._tokens.refused()
        return verdict

    async def _authorization(self, plan: _Plan) -> str:
        spec, now = plan.spec, self._clock.now() // 1000
        if spec.key is None or spec.key_name is None:
            return f"Bearer {await self._tokens.get()}"
        if now >= plan.until:
            # Used for half of its life, so that clocks which differ do no harm.
            plan.signature, plan.until = sign_access(plan.resource, spec.key_name, spec.key, now + SECONDS), now + SECONDS // 2
        return plan.signature

    def _plan(self, target: Target) -> _Plan:
        key, spec = (target.identity, target.name), target.spec
        plan = self._plans.get(key)
        if plan is None or plan.spec is not spec:
            if not isinstance(spec, ServiceBusChannel):
                raise TypeError(f"not a servicebus channel: {spec.type}")
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _make_plan(target, spec, self._egress)
        return plan

    async def close(self) -> None:
        """Close the connections and the credential."""
        await self._client.close()
        await self._tokens.close()
