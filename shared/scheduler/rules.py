"""The scheduler's decisions: pure functions of what is stored, what was observed, and the time.

An event row's states and who may move it:

    scheduled --claim--> firing --settle--> delivered | dead | retrying       (owner, with the gate)
    retrying  --claim--> firing                                               (owner, with the gate)
    scheduled | retrying --> lapsed                                           (owner, with the gate)
    scheduled | retrying --> cancelled | moving                               (anyone, on the row's ETag; not when flagged)
    moving --> moved                                                          (anyone, on the row's ETag, after the copy is placed)

`flag` marks an event that a later owner claimed again: its former owner may still be about to start it, so it can be neither cancelled nor
moved until it is final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..clock import Millis
from ..storage.ports import Props
from .keys import MINUTE
from .protocol.gate import Counts, Gate

FINAL = frozenset({"delivered", "dead", "lapsed", "cancelled", "moved"})
WAITING = frozenset({"scheduled", "retrying"})

OWNER_MAY_START = 30.0
"""V: seconds from the SEND of an owner's last beat within which it may start deliveries."""
OWNER_SILENT: Millis = 45_000
"""T: age of a gate, in the storage service's own time, from which its shard may be taken. T > V (1 + r) / (1 - r) + 1 s, r = 1 %."""
BEAT_EVERY = 10.0
CLAIM_AHEAD: Millis = 3_000
"""Events are claimed this long before they are due, so that claims are in when the instant comes."""
REST_BEYOND: Millis = 20_000
WAKE_EARLY: Millis = 5_000
"""A shard's message becomes visible this long before its wake-up: time to take and load."""
DISPATCH_AHEAD: Millis = 2 * MINUTE
CRASH_TRIES = 10
"""Claims beyond the allowed attempts before an event whose owners keep dying is given up as dead."""
HISTORY = 20
NEVER = -1
"""`expires` of an event that no longer has one: a merge cannot take a property away."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to try again. Times in milliseconds."""

    attempts: int = 8
    first: Millis = 5_000
    longest: Millis = 3_600_000
    within: Millis = 86_400_000


class Outcome(NamedTuple):
    """What an attempt, or the decision not to make one, does to its event row."""

    state: Literal["delivered", "retrying", "dead", "lapsed", "scheduled"]
    props: Props


def tally(states: Iterable[str]) -> Counts:
    """Counts from the rows' own states: what every owner starts from, never from a former owner's numbers."""
    count = Counter(states)
    return Counts(
        accepted=count.total(),
        delivered=count["delivered"],
        retrying=count["retrying"],
        dead=count["dead"],
        lapsed=count["lapsed"],
        cancelled=count["cancelled"],
        moved=count["moved"],
    )


def due_at(props: Props) -> Millis:
    """When an open event is to be delivered next: its due time, or its next attempt."""
    return int(props["next"]) if props["state"] == "retrying" else int(props["due"])


def needs_claim(props: Props, epoch: int) -> bool:
    """Whether an owner of `epoch` must claim this row before it may deliver: not claimed, or claimed by a former owner."""
    state = props["state"]
    return state in WAITING or (state == "firing" and props.get("epoch") != epoch)


def claim_props(props: Props, epoch: int) -> Props:
    """The row's change when it is claimed. Claiming what a former owner had claimed sets the flag, for good."""
    change: Props = {"state": "firing", "epoch": epoch, "tries": int(props.get("tries", 0)) + 1}
    if props["state"] == "firing":
        change["flag"] = True
    return change


def lapsed(props: Mapping[str, Any], now: Millis) -> bool:
    """Whether the event has outlived its `expires`."""
    expires = int(props.get("expires", NEVER))
    return expires != NEVER and now > int(props["due"]) + expires


def back_off(policy: RetryPolicy, tries: int, chance: float, retry_after: float | None) -> Millis:
    """Milliseconds to wait after attempt `tries` (1 = the first): exponential with full jitter, or what the target asked for if longer.

    Source: "Exponential Backoff And Jitter" (full jitter); `Retry-After` of RFC 9110 is a lower bound.
    """
    ceiling = min(policy.longest, policy.first << min(tries - 1, 40))
    wait = max(1, round(ceiling * chance))
    return wait if retry_after is None else max(wait, round(retry_after * 1000))


def after_failure(
    policy: RetryPolicy, due: Millis, tries: int, now: Millis, chance: float, *, final: bool, retry_after: float | None = None
) -> Millis | None:
    """When to try again, or None: dead."""
    if final or tries >= policy.attempts:
        return None
    again = now + back_off(policy, tries, chance, retry_after)
    return again if again <= max(due, 0) + policy.within else None


def given_up(props: Props, policy: RetryPolicy) -> bool:
    """Whether owners have died over this event so often that it must not be tried again."""
    return props["state"] == "firing" and int(props.get("tries", 0)) >= policy.attempts + CRASH_TRIES


type ChangeAnswer = Literal["yes", "already-firing", "already-final", "moving", "moved"]


def may_change(props: Props) -> ChangeAnswer:
    """Whether the row may be cancelled, moved or edited now.

    `firing` may be about to start at any owner, former ones included; `flag` says that a former one might.
    """
    match props["state"]:
        case "moving":
            return "moving"
        case "moved":
            return "moved"
        case "firing":
            return "already-firing"
        case "scheduled" | "retrying":
            return "already-firing" if props.get("flag") else "yes"
        case _:
            return "already-final"


def wake_of(rows: Iterable[Props]) -> Millis | None:
    """When the shard must be served next: the earliest open event, or None when nothing is open."""
    return min((due_at(props) for props in rows if props["state"] not in FINAL), default=None)


def may_take(gate: Gate, age: Millis) -> bool:
    """Whether a shard whose gate is `age` old, by the store's own time, may be taken."""
    return gate.state in ("open", "resting") or (gate.state == "owned" and age >= OWNER_SILENT)


class Nudge(NamedTuple):
    """What the sweep does about an index row."""

    do: Literal["send", "inspect", "nothing"]
    at: Millis = 0
    """When the message is to become visible."""


def nudge(state: str, wake: Millis, resent: Millis, now: Millis) -> Nudge:
    """The sweep's decision for one index row: dispatch it, look whether its owner is alive, or leave it.

    `resent`: when its message was last sent again, 0 for never. At most once per `OWNER_SILENT`.
    """
    if wake > now + DISPATCH_AHEAD:
        return Nudge("nothing")
    if state != "sent":
        return Nudge("send", wake - WAKE_EARLY)
    return Nudge("inspect") if now >= max(wake, resent) + OWNER_SILENT else Nudge("nothing")


def opens_at(due: Millis, now: Millis) -> Millis:
    """The wake-up of a shard opened now for an event due at `due`: a future minute's start, so that all its events fit; else the event's
    own time."""
    start = due - due % MINUTE
    return start if start > now else max(due, now)


class Agenda(NamedTuple):
    """What an owner does next with the rows it knows."""

    claim: list[str]
    """Rows to claim now, the earliest first."""
    settle: dict[str, Outcome]
    """Rows to end without a delivery: lapsed, or given up."""
    look: Millis | None
    """When there is something to claim next, if the owner stays."""
    rest: Millis | None
    """Let go until then: nothing is due soon, or only retries are left."""
    finished: bool
    """Nothing is open any more."""


def agenda(rows: Mapping[str, Props], epoch: int, now: Millis, policy: Callable[[Props], RetryPolicy]) -> Agenda:
    """Decide from the rows alone. Rows already claimed under `epoch` are being delivered: they keep the shard, and are left alone."""
    claim: list[tuple[Millis, str]] = []
    settle: dict[str, Outcome] = {}
    fresh: Millis | None = None
    retry: Millis | None = None
    running = opened = False
    for rk, props in rows.items():
        state = props["state"]
        if state in FINAL:
            continue
        opened = True
        if not needs_claim(props, epoch):
            running = True
            continue
        if lapsed(props, now):
            settle[rk] = Outcome("lapsed", {"ended": now})
            continue
        if state == "firing":
            if given_up(props, policy(props)):
                settle[rk] = Outcome("dead", {"ended": now, "error": "its owners kept dying while they delivered it"})
            else:
                claim.append((due_at(props), rk))
            continue
        due = due_at(props)
        if due <= now + CLAIM_AHEAD:
            claim.append((due, rk))
        elif state == "retrying":
            retry = due if retry is None else min(retry, due)
        else:
            fresh = due if fresh is None else min(fresh, due)
    claim.sort()
    following = min((due for due in (fresh, retry) if due is not None), default=None)
    idle = opened and not (claim or settle or running)
    stay = (fresh is not None and fresh <= now + REST_BEYOND) or (retry is not None and retry <= now + WAKE_EARLY)
    return Agenda(
        claim=[rk for _, rk in claim],
        settle=settle,
        look=None if following is None else following - CLAIM_AHEAD,
        rest=following if idle and not stay else None,
        finished=not opened,
    )
