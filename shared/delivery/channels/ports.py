"""The contract between the scheduler and channels: each type has a `Sender`, which takes an `OutgoingDelivery` and returns a `Verdict`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ...core.clock import Millis
from ..circuit_breaker import CLOSED, Breaker
from ..entra.grants import EntraAudience
from ..listed_tenants import TenantIdentity
from .answer_heads import AnswerHead
from .content import JSON
from .model import ChannelSpec

if TYPE_CHECKING:
    from ..fleet_owners import PartitionOwner


class EndedHold(NamedTuple):
    """A span of time in which the channel let nothing through. Times in milliseconds."""

    reason: Literal["paused", "breaker"]
    first: Millis
    end: Millis


@dataclass(slots=True, frozen=True)
class Target:
    """A channel with its settings, state and currently valid webhook secrets (newest first; http only)."""

    tenant: str
    name: str
    spec: ChannelSpec
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Each as `whsec_...`; two while a rotation is in progress."""
    paused: bool = False
    """True if no delivery may start."""
    reason: str = ""
    """Reason of the pause, as a person wrote it."""
    paused_at: Millis = 0
    breaker: Breaker = CLOSED
    ended_holds: tuple[EndedHold, ...] = ()
    """The latest pauses and openings of the breaker that have ended."""
    audiences: tuple[EntraAudience, ...] = ()
    """The tenant's rules for tokens of Entra; http only."""
    uid: str = ""
    """The tenant's uid."""

    @property
    def identity(self) -> TenantIdentity:
        """The tenant, as the operator's lists name it."""
        return TenantIdentity(self.tenant, self.uid)


@dataclass(slots=True, frozen=True)
class CompletionOffer:
    """The way for a receiver to complete an event later. Each attempt has a URL and a token of its own."""

    url: Callable[[int], str]
    """Returns the URL for an attempt's number. It holds no secret."""
    token: Callable[[int], str] = field(repr=False)
    """Returns the token of an attempt's number."""
    within: Millis
    """Milliseconds from the answer until silence is a failed attempt."""


@dataclass(slots=True)
class OutgoingDelivery:
    """One attempt to deliver an event. fired: the time at which the attempt starts."""

    id: str
    due: Millis
    fired: Millis
    attempt: int
    """1 for the first attempt."""
    body: bytes
    """The payload's JSON, exactly as sent by the client; or the bytes of an event with a content type of its own."""
    traceparent: str | None = None
    completion: CompletionOffer | None = None
    """None unless the channel lets its receiver complete the event later."""
    ordering_key: str | None = None
    event_target: str | None = None
    """The event's own parts of the request, as stored (`event_target.EventTarget`); http only."""
    content_type: str = JSON
    """The type of the body."""
    timeout: Millis | None = None
    """Longest time of the attempt, instead of the channel's own; http and fleet only."""
    owner: PartitionOwner | None = None
    """The server that gets the delivery; fleet only."""
    expected: Millis = 0
    """The time from which its lateness counts, if that is later than `due`."""

    @property
    def late_ms(self) -> int:
        """Milliseconds that the attempt starts late."""
        return max(0, self.fired - max(self.due, self.expected))


class Verdict(NamedTuple):
    """The result of an attempt.

    delivered: accepted by the receiver. retry: try again, after at least `retry_after` seconds if given. final: never try again.
    stale: the server does not own the partition: look up the owner and send again. This is no failed attempt.
    """

    outcome: Literal["delivered", "retry", "final", "stale"]
    status: int | None = None
    error: str | None = None
    """One line, at most 500 characters, without secrets."""
    retry_after: float | None = None
    answer: AnswerHead | None = None
    """The head of the receiver's answer, masked, if it is kept."""
    later: bool = False
    """True if the receiver has accepted the event and will complete it later; `outcome` is delivered."""
    gone: bool = False
    """True if the receiver wants no more deliveries of the channel: it is paused."""
    unreached: bool = False
    """True if there was no connection to the receiver, or it ended before an answer began."""


class SecondVerdict(Verdict):
    """The verdict on a second send within one attempt, after the first was lost with a kept connection. Each send has its own number."""

    sent_at: Millis
    """Time of the second send."""
    first_error: str
    """The result of the first send."""

    @classmethod
    def of(cls, verdict: Verdict, sent_at: Millis, first_error: str) -> SecondVerdict:
        """Return `verdict` as that of a second send."""
        second = cls(*verdict)
        second.sent_at, second.first_error = sent_at, first_error
        return second


class Sender(Protocol):
    """Makes deliveries of one channel type. Never raises for a receiver's behaviour; that becomes a `Verdict`."""

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Attempt the delivery once, within the channel's time-out."""

    async def close(self) -> None:
        """Release connections."""
