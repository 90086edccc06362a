"""Long work: receivers complete, fail and extend an event without its shard's owner.

    URL      {base}/api/v1/work/{tenant}/{place}/{attempt}        place: the shard's name and the event's number, as in ids of the service
    token    tct_{epoch}_{43 letters}: an HMAC-SHA256 over the place, the epoch and the attempt

So a call with a token that this service has not made is refused before anything is read. A row holds only the hash of its attempt's token.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from ...core.clock import Millis, to_text
from ...core.long_work import TOKEN
from ...delivery.channels.model import LongWork as LongWorkSettings
from ...delivery.channels.ports import CompletionOffer
from ...storage.ports import Props
from ..failures import failed_attempt
from ..keys import Address, digest, server_id, shard_tenant
from ..points import Facet
from ..properties.attempts import KeptAnswer, with_attempt, with_end
from ..properties.late_reasons import expected_at
from ..properties.work_rows import WORK, Work, WorkEnd, noted_work, work_of
from ..rules import RowOutcome, due_at
from ..shard.retries import RetryPolicy

type WorkState = Literal["working", "unsettled", "superseded"] | WorkEnd

PATH = "/api/v1/work"
MARGIN: Millis = 1_000
"""A heartbeat that extends the time by less than this is not stored."""
_ENDED = {
    "completed": "this attempt's work was completed before",
    "failed": "this attempt's work was reported as failed before",
    "silent": "the time of this attempt was over before anything was heard of its work, so it counts as failed",
}
_ELSEWHERE = {
    "cancelled": "the event was cancelled",
    "moving": "the event was rescheduled",
    "joining": "the event was rescheduled",
    "moved": "the event was rescheduled",
    "dead": "the event is dead",
    "lapsed": "the event has lapsed",
    "delivered": "the event is delivered",
}


@dataclass(frozen=True, slots=True)
class LongWork(Facet):
    """A receiver's silence applies only while its work goes on. Work that fails may call an owner before the shard's wake-up."""

    @property
    def own(self) -> frozenset[str]:
        return frozenset({WORK})

    def still(self, outcome: RowOutcome, props: Props) -> bool | None:
        if outcome.deadline is None:
            return None
        # Silence ends with a heartbeat, which gives the work another deadline.
        return work_of(props) is not None and due_at(props) == outcome.deadline

    def wakes_early(self, props: Mapping[str, Any]) -> bool:
        return WORK in props


class HeldToken(NamedTuple):
    """The facts of a token that this service has made: the attempt that it belongs to, and its hash."""

    attempt: int
    epoch: int
    hash: str


def accepted(
    props: Mapping[str, Any],
    spec: LongWorkSettings,
    token_hash: str,
    *,
    began: Millis,
    now: Millis,
    status: int | None,
    kept: KeptAnswer | None,
) -> RowOutcome:
    """Return the outcome of an attempt that the receiver has accepted, to complete it later: a retry that is due when its time is over.

    props: the claimed row. began: start of the attempt.
    """
    work = Work(int(props["tries"]), int(props["epoch"]), token_hash, began, spec.within, now + spec.at_most)
    history = with_attempt(props, began, "working", status, None, now - began)
    return RowOutcome("retrying", {"next": now + spec.within, "history": history, WORK: work.text()}, kept)


def state_of(props: Mapping[str, Any], token: HeldToken) -> WorkState:
    """Return the state of the work that the token belongs to.

    unsettled: its owner may be about to store that the receiver has accepted. superseded: the event went on without it.
    """
    work = noted_work(props)
    if work is not None and hmac.compare_digest(work.token, token.hash):
        return work.end or ("working" if work_of(props) is not None else "superseded")
    # One attempt may send twice, under two numbers; the second one is stored with its outcome.
    tries = int(props.get("tries", 0))
    if props["state"] == "firing" and props.get("epoch") == token.epoch and token.attempt in (tries, tries + 1):
        return "unsettled"
    return "superseded"


def completed(props: Mapping[str, Any], work: Work, now: Millis) -> RowOutcome:
    """Return the outcome of work that its receiver has completed."""
    late = max(0, work.began - expected_at(props))
    history = with_end(props, work.began, "delivered", None, now - work.began)
    return RowOutcome("delivered", {"ended": now, "late": late, "history": history, WORK: work._replace(end="completed").text()})


def failed(
    props: Mapping[str, Any],
    work: Work,
    policy: RetryPolicy,
    *,
    now: Millis,
    error: str,
    final: bool,
    retry_after: float | None = None,
    end: WorkEnd = "failed",
) -> RowOutcome:
    """Return the outcome of work that has failed: that of any failed attempt. The time of the work does not use up the policy's."""
    history = with_end(props, work.began, "final" if final else "retry", error, now - work.began)
    outcome = failed_attempt(
        props,
        policy,
        now=now,
        chance=_chance(props),
        waited=max(0, now - work.began),
        history=history,
        error=error,
        final=final,
        retry_after=retry_after,
    )
    return outcome._replace(props={**outcome.props, WORK: work._replace(end=end).text()})


def silence(props: Mapping[str, Any], policy: RetryPolicy, now: Millis) -> RowOutcome:
    """Return the outcome of work whose receiver has been silent until its time was over. It applies only while that time stands."""
    work, deadline = work_of(props), int(props["next"])
    assert work is not None  # the agenda names only events with work
    error = f"the receiver accepted the event and did not complete it in time: nothing was heard of it until {to_text(deadline)}"
    return failed(props, work, policy, now=now, error=error, final=False, end="silent")._replace(deadline=deadline)


def heard(props: Mapping[str, Any], work: Work, now: Millis) -> Props:
    """Return the row's change for a heartbeat; empty if it would extend the time by next to nothing."""
    deadline = min(now + work.within, work.latest)
    if deadline < int(props["next"]) + MARGIN:
        return {}
    return {"next": deadline, WORK: work._replace(beats=work.beats + 1, beat=now).text()}


def refusal(props: Mapping[str, Any], state: WorkState) -> str:
    """Return why a call about work that does not go on is refused, for the receiver."""
    why = _ENDED.get(state) or _ELSEWHERE.get(str(props["state"])) or "the service has gone on to another attempt"
    return f"{why}; nothing was changed. Stop the work, and discard its result if it must not count twice."


def _chance(props: Mapping[str, Any]) -> float:
    """Return a number from 0 to 1 that follows from the attempt, so that the same decision is made twice."""
    return int.from_bytes(digest("work", str(props["id"]), str(props.get("tries", 0)))[:4]) / 0xFFFF_FFFF


def hash_of(token: str) -> str:
    """Return the hash of a token, as rows hold it."""
    return sha256(token.encode()).hexdigest()


class WorkTokens:
    """Makes and verifies tokens. `master`: the service's master key. `base`: the address of the app; '' makes URLs without a host."""

    def __init__(self, master: str, base: str = "") -> None:
        self._key = hmac.digest(master.encode(), b"tocsin long work", "sha256")
        self._base = base.rstrip("/")

    def offer(self, address: Address, epoch: int, within: Millis) -> CompletionOffer:
        """Return the offer to the receiver of the event at `address`, which an owner of `epoch` has claimed."""
        url = f"{self._base}{PATH}/{shard_tenant(address.shard)}/{server_id(address.shard, address.row)}"
        return CompletionOffer(lambda attempt: f"{url}/{attempt}", partial(self.token, address, epoch), within)

    def token(self, address: Address, epoch: int, attempt: int) -> str:
        """Return the token of an attempt."""
        text = f"{address.text}\0{epoch}\0{attempt}"
        secret = hmac.digest(self._key, text.encode(), "sha256")
        return f"tct_{epoch}_{urlsafe_b64encode(secret).decode().rstrip('=')}"

    def read(self, address: Address, attempt: int, text: str) -> HeldToken | None:
        """Return the facts of a token; None if it is not the token of this attempt."""
        found = TOKEN.fullmatch(text)
        if found is None:
            return None
        epoch = int(found[1])
        if not hmac.compare_digest(self.token(address, epoch, attempt), text):
            return None
        return HeldToken(attempt, epoch, hash_of(text))
