"""The scheduler's decisions: pure functions of what is stored, what was observed, and the time.

An event row's states and who may move it:

    scheduled --claim--> firing --settle--> delivered | dead | retrying       (owner, with the gate)
    retrying  --claim--> firing                                               (owner, with the gate)
    firing    --give back--> scheduled | retrying                             (owner, with the gate: not started, its channel takes no more)
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

from ..core.clock import Millis
from ..delivery.flow.rules import FREE, Hold
from ..storage.ports import Props
from ..tenants.model import Durability
from .attempt_history import with_unknown
from .keys import MINUTE, digest
from .protocol.gate import Counts, Gate
from .timings import (
    BACKLOG_AFTER,
    BACKLOG_RESEND_PAUSE,
    CLAIM_AHEAD,
    CROWDED_SLICE,
    DISPATCH_AHEAD,
    LONGEST_RESEND_PAUSE,
    MOST_LOST_OWNERS,
    OPEN_BEFORE,
    OWNER_SILENT,
    REST_BEYOND,
    STEADY_ROUNDS,
    WAKE_EARLY,
)

FINAL = frozenset({"delivered", "dead", "lapsed", "cancelled", "moved"})
WAITING = frozenset({"scheduled", "retrying"})


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
    """The row's change when it is claimed. Claiming what a former owner had claimed sets the flag, for good, and leaves an attempt
    `unknown`."""
    change: Props = {"state": "firing", "epoch": epoch, "tries": int(props.get("tries", 0)) + 1}
    if props["state"] == "firing":
        change["flag"] = True
        change["history"] = with_unknown(props)
    return change


def spread(tenant: str, name: str, flex: Millis) -> Millis:
    """Where in a window of `flex` milliseconds (more than 0) the event of this name is planned: a hash, so that thousands due at one
    instant come evenly, and one event always at the same place."""
    return int.from_bytes(digest("flex", tenant, name)[:8]) % flex


def asked_due(props: Mapping[str, Any], due: Millis) -> Millis:
    """The due time that was asked for, of an event that is planned for `due`: its window starts there."""
    return due - int(props.get("shift", 0))


def last_call(props: Mapping[str, Any]) -> Millis | None:
    """The last instant at which the event may be delivered, or None: `expires` counts from the due time that was asked for."""
    expires = int(props.get("expires", NEVER))
    return None if expires == NEVER else asked_due(props, int(props["due"])) + expires


def lapsed(props: Mapping[str, Any], now: Millis) -> bool:
    """Whether the event has outlived its `expires`."""
    until = last_call(props)
    return until is not None and now > until


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
    return props["state"] == "firing" and int(props.get("tries", 0)) >= policy.attempts + MOST_LOST_OWNERS


_SAFER: tuple[Durability, ...] = ("fast", "standard", "mirrored")


def durability_of(floor: Durability | None, wish: Durability | None) -> Durability:
    """What an event asks for, but never less than its tenant's; the tenant's if it asks for nothing, or else `standard`."""
    if floor is None or wish is None:
        return wish or floor or "standard"
    return max(wish, floor, key=_SAFER.index)


def _interrupted(props: Props) -> Props:
    """What ends without another claim: the attempt of the owner that had claimed it must not go untold."""
    return {"history": with_unknown(props)} if props["state"] == "firing" else {}


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


def nudge(state: str, wake: Millis, resent: Millis, now: Millis, rounds: int = 0, *, paced: bool = False) -> Nudge:
    """The sweep's decision for one index row: dispatch it, look whether its owner is alive, or leave it.

    `resent`: when its message was last sent again, or is to become visible; 0 for never. `rounds`: how often it was. `paced`: it was handed
    out as part of a backlog.
    """
    if wake > now + DISPATCH_AHEAD:
        return Nudge("nothing")
    if state != "sent":
        return Nudge("send", wake - WAKE_EARLY)
    return Nudge("inspect") if now >= max(wake, resent) + pause_after(rounds, paced=paced) else Nudge("nothing")


def pause_after(rounds: int, *, paced: bool = False) -> Millis:
    """How long a shard that nobody serves is left alone after its message was sent again `rounds` times."""
    pause = min(OWNER_SILENT << min(max(0, rounds - STEADY_ROUNDS), 20), LONGEST_RESEND_PAUSE)
    return max(pause, BACKLOG_RESEND_PAUSE) if paced else pause


def in_backlog(due: Millis, now: Millis) -> bool:
    """Whether what was due at `due` is so late that it lets punctual events go first."""
    return due + BACKLOG_AFTER <= now


def opens_at(due: Millis, now: Millis, *, crowded: bool = False) -> Millis:
    """The wake-up of a shard opened now for an event due at `due`. `crowded`: a shard of its minute has been filled already.

    A future minute's start, so that all the minute's events fit; in a crowded one the start of a part of it, so that owners are done with
    what fills a shard in a part of the minute, and commit for that long, not each for all of it. In the minute that runs, a little before
    the event, so that what is posted meanwhile and due a little earlier fits too; the nearer the event, the less. Now, if an owner must
    come at once.
    """
    start = due - due % MINUTE
    if start > now:
        return due - due % CROWDED_SLICE if crowded else start
    soonest = now + WAKE_EARLY
    return now if due <= soonest else due - min((due - soonest) // 2, OPEN_BEFORE)


class Agenda(NamedTuple):
    """What an owner does next with the rows it knows."""

    claim: list[str]
    """Rows to claim now, the earliest first."""
    settle: dict[str, Outcome]
    """Rows to end without a delivery: lapsed, or given up."""
    look: Millis | None
    """When there is something to claim next, if the owner stays."""
    rest: Millis | None
    """Let go until then: nothing is due soon, or only retries and held events are left."""
    finished: bool
    """Nothing is open any more."""
    retries: bool = False
    """Of what is open nothing waits for its own due time: the wake-up is for retries and for held events."""


def agenda(
    rows: Mapping[str, Props], epoch: int, now: Millis, policy: Callable[[Props], RetryPolicy], holds: Mapping[str, Hold] = FREE
) -> Agenda:
    """Decide from the rows alone. Rows already claimed under `epoch` are being delivered: they keep the shard, and are left alone.

    `holds`, by channel: what is held stays as it is, claimable by a later look and cancellable until then, and does not keep the shard.
    """
    claim: list[tuple[Millis, str]] = []
    settle: dict[str, Outcome] = {}
    fresh: Millis | None = None
    retry: Millis | None = None
    held: Millis | None = None
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
            settle[rk] = Outcome("lapsed", {"ended": now, **_interrupted(props)})
            continue
        if state == "firing":
            if given_up(props, policy(props)):
                error = "its owners kept dying while they delivered it"
                settle[rk] = Outcome("dead", {"ended": now, "error": error, **_interrupted(props)})
            else:
                claim.append((due_at(props), rk))
            continue
        due = due_at(props)
        if due <= now + CLAIM_AHEAD:
            claim.append((due, rk))
        elif holds and (hold := holds.get(str(props["channel"]))) is not None and not hold.room and due < hold.until:
            held = _sooner(held, _again(props, hold))
        elif state == "retrying":
            retry = due if retry is None else min(retry, due)
        else:
            fresh = due if fresh is None else min(fresh, due)
    claim.sort()
    if holds:
        claim, until = _admitted(rows, claim, holds)
        held = _sooner(held, until)
    following = _sooner(fresh, retry)
    idle = opened and not (claim or settle or running)
    stay = (fresh is not None and fresh <= now + REST_BEYOND) or (retry is not None and retry <= now + WAKE_EARLY)
    return Agenda(
        claim=[rk for _, rk in claim],
        settle=settle,
        look=_sooner(None if following is None else following - CLAIM_AHEAD, held),
        # A wake-up's message comes early, for there is work to do before the instant; what is held needs none of that.
        rest=_sooner(following, None if held is None else held + WAKE_EARLY) if idle and not stay else None,
        finished=not opened,
        retries=fresh is None,
    )


def _sooner(one: Millis | None, other: Millis | None) -> Millis | None:
    return other if one is None else one if other is None else min(one, other)


def _again(props: Props, hold: Hold) -> Millis:
    """When a held event is to be looked at: with its channel, or to let it lapse."""
    until = last_call(props)
    return hold.until if until is None else min(hold.until, until + 1)


def _admitted(
    rows: Mapping[str, Props], claim: list[tuple[Millis, str]], holds: Mapping[str, Hold]
) -> tuple[list[tuple[Millis, str]], Millis | None]:
    """What of `claim` may be claimed, and when to look at the rest again."""
    ahead: dict[str, list[tuple[Millis, str]]] = {channel: [] for channel in holds}
    for each in claim:
        channel = str(rows[each[1]]["channel"])
        if channel in ahead:
            ahead[channel].append(each)
    left: set[str] = set()
    held: Millis | None = None
    for channel, waiting in ahead.items():
        hold = holds[channel]
        if hold.fresh_first:
            waiting.sort(key=lambda each: (rows[each[1]]["state"] != "scheduled", each))
        for _, rk in waiting[hold.room :]:
            left.add(rk)
            held = _sooner(held, _again(rows[rk], hold))
    return [each for each in claim if each[1] not in left], held
