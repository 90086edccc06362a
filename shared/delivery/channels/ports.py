"""What a channel is to the scheduler: one `Sender` per type, handed a `Delivery`, answering a `Verdict`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from ...core.clock import Millis
from ..flow.circuit_breaker import CLOSED, Breaker
from .model import ChannelSpec


@dataclass(slots=True, frozen=True)
class Target:
    """A channel as the directory holds it: its settings, and the webhook secrets now valid (newest first; http only)."""

    tenant: str
    name: str
    spec: ChannelSpec
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """`whsec_...` each: one, or two while a rotation is under way."""
    paused: bool = False
    """No delivery is to be started."""
    reason: str = ""
    """Why it is paused, as a person wrote it."""
    paused_at: Millis = 0
    breaker: Breaker = CLOSED


@dataclass(slots=True)
class Delivery:
    """One attempt at one event. `fired` is the instant the attempt starts; `late_ms` = max(0, fired - due)."""

    id: str
    due: Millis
    fired: Millis
    attempt: int
    """1 for the first attempt."""
    body: bytes
    """The payload's JSON, as it was sent in."""
    traceparent: str | None = None

    @property
    def late_ms(self) -> int:
        return max(0, self.fired - self.due)


class Verdict(NamedTuple):
    """How an attempt ended.

    delivered: taken by the target. retry: try again, not before `retry_after` seconds if given. final: never try again.
    """

    outcome: Literal["delivered", "retry", "final"]
    status: int | None = None
    error: str | None = None
    """One line, at most 500 characters, no secret in it."""
    retry_after: float | None = None


class Sender(Protocol):
    """Carries out deliveries of one channel type. Never raises for what a target does wrong: that is a Verdict."""

    async def send(self, target: Target, delivery: Delivery) -> Verdict:
        """Attempt the delivery once, within the channel's time-out."""

    async def close(self) -> None:
        """Release connections."""
