"""The observations of a run: plain data, without a judgement. No text of an answer is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..deployment.seen import OffsetBounds


class Observed(NamedTuple):
    """The answer to one request, or the reason why there is none."""

    status: int | None = None
    failure: str = ""
    """The reason why there is no status, in this command's words."""
    outcome: Literal["delivered", "retry", "final"] = "retry"
    """The service's verdict on the answer."""
    ms: float = 0.0
    """Milliseconds to the end of the answer's head, with connecting."""
    early: bool = False
    """True if the answer came before the request was sent to its end."""
    unread: bool = False
    """True if the answer's body was too long, or not over in time, so that the connection cannot be used again."""
    retry_after: bool | None = None
    """None without `Retry-After`; True if it can be read."""
    retry_later: float | None = None
    """Seconds that `Retry-After` asks for."""
    duplicate: bool | None = None
    """True if the answer says that the event was processed before, False if it says that it was not."""
    used: bool = False
    """True if the connection had served a request before."""
    says_kept: bool = False
    """True if the answer lets the connection stay open."""
    timed_out: bool = False
    unreached: bool = False
    """True if there was no connection."""

    @property
    def accepted(self) -> bool:
        """True for a 2xx."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def throttled(self) -> bool:
        """True if the receiver asks for fewer requests."""
        return self.status == 429 or (self.status == 503 and self.retry_later is not None)

    @property
    def broken(self) -> bool:
        """True without an answer, and for a 5xx: the receiver failed."""
        return self.status is None or self.status >= 500

    @property
    def text(self) -> str:
        """The answer for people."""
        return self.failure if self.status is None else f"answered {self.status}"


@dataclass(slots=True)
class Step:
    """Requests that belong together."""

    answers: list[Observed] = field(default_factory=list)
    done: int | None = None
    """Effects by the count; None if it is not counted."""
    before: int | None = None
    """The count before the step; None if it was not read."""
    prompt: int | None = None
    """The same, right after the answer."""
    lag: float | None = None
    """Seconds until the first delivery's effect showed in the count."""

    @property
    def first(self) -> Observed:
        """The answer of a step with one request."""
        return self.answers[0]

    @property
    def effects(self) -> int | None:
        """Times that the receiver did the work; None if that cannot be seen. The count says more than headers."""
        if self.done is not None:
            return self.done
        accepted = [each.duplicate for each in self.answers if each.accepted]
        return None if not accepted or None in accepted else accepted.count(False)


class Certificate(NamedTuple):
    """The certificate of the endpoint. error: the reason why it is refused. days: days until it expires."""

    error: str = ""
    days: float | None = None


@dataclass(slots=True)
class IdleConnection:
    """A connection that was left unused. closed_after: seconds until the receiver closed it; None if it did not."""

    closed_after: float | None = None
    waited: float = 0.0


@dataclass(slots=True)
class ReceiverSeen:
    """The observations of a run."""

    owner: str = ""
    """The reason why the endpoint may be checked."""
    certificate: Certificate | None = None
    """None without TLS."""
    offset: OffsetBounds = field(default_factory=OffsetBounds)
    shift_ms: int = 0
    """Milliseconds by which time stamps were moved to the receiver's clock, because it is wrong."""
    steps: dict[str, Step] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the bodies of steps that try sizes."""
    closed_at_once: bool = False
    """True if a connection was closed right after an answer that lets it stay open."""
    closed_unused: float | None = None
    """Seconds after which a connection was closed, while the second delivery waited for its turn; None if it was not."""
    idle: IdleConnection | None = None
    count_error: str = ""
    """The reason why the count of effects could not be read."""
    count_throttled: bool = False
    """True if the count could not be read because of too many requests."""
    stopped: str = ""
    """The reason why the run ended early; empty if it did not."""
    requests: int = 0
    """Requests sent, with those that had no answer."""

    def first(self, name: str) -> Observed | None:
        """Return the answer of a step; None if the run did not come to it."""
        step = self.steps.get(name)
        return step.answers[0] if step is not None and step.answers else None

    def throttled(self, names: Sequence[str]) -> bool:
        """Return True if all requests of one of these steps were too many for the receiver."""
        return any((step := self.steps.get(name)) is not None and all(each.throttled for each in step.answers) for name in names)

    def effects(self, name: str) -> int | None:
        """Return the effects of a step; None if it was not run, or they cannot be seen."""
        step = self.steps.get(name)
        return None if step is None else step.effects

    def effects_counted(self, name: str) -> int | None:
        """Return the effects of a step by the count alone: what refused requests did."""
        step = self.steps.get(name)
        return None if step is None else step.done


def duplicate_of(status: int, fields: Mapping[str, str]) -> bool | None:
    """Return what an answer says about a duplicate: by the header `tocsin-duplicate`, or by the status 208 (Already Reported)."""
    said = fields.get("tocsin-duplicate", "").strip().lower()
    if said in ("yes", "true", "1"):
        return True
    if said in ("no", "false", "0"):
        return False
    return True if status == 208 else None
