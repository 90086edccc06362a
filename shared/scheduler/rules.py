"""The scheduler's decisions: pure functions of stored state, observations, and the time.

The states of an event row, and who may change them:

    scheduled --claim--> firing --settle--> delivered | dead | retrying       (owner, with the gate)
    retrying  --claim--> firing                                               (owner, with the gate)
    firing    --give back--> scheduled | retrying                             (owner, with the gate: not started, its channel takes no more)
    scheduled | retrying --> lapsed                                           (owner, with the gate)
    retrying with work   --> retrying | dead | lapsed                         (owner, with the gate: the receiver's time is over)
    retrying with work   --> delivered | retrying | dead | lapsed             (receiver, by the attempt's token, on the row's ETag)
    scheduled | retrying --> cancelled | moving | joining                     (anyone, on the row's ETag; not when flagged)
    moving | joining --> moved                                                (anyone, on the row's ETag, after the copy is placed)

`flag` marks an event that a later owner claimed again. Its former owner may still be about to start it, so it can be neither cancelled nor
moved until it is final.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..core import backoff
from ..core.clock import Millis
from ..delivery.flow.rules import FREE, ClaimHold
from ..storage.ports import Props, Value
from ..tenants.model import Durability
from .keys import MINUTE, digest
from .properties import attempts
from .properties.attempts import KeptAnswer, with_unknown
from .properties.work_rows import WORK, work_of
from .shard.gate import Counts, Gate
from .shard.retries import RetryPolicy, given_up
from .timings import (
    BACKLOG_AFTER,
    BACKLOG_RESEND_PAUSE,
    BURST_ALONE,
    BURST_FEWER,
    BURST_FROM,
    BURST_GROWTH,
    BURST_HELD_FOR,
    BURST_PASSES,
    BURST_SHARDS,
    BURST_WATCHED_FROM,
    CLAIM_AHEAD,
    DISPATCH_AHEAD,
    LONE_SHARDS,
    LONGEST_RESEND_PAUSE,
    MANY_EVENTS,
    OPEN_BEFORE,
    OPEN_BEFORE_MANY,
    OWNER_SILENT,
    RECOVER_AFTER,
    REST_BEYOND,
    STEADY_ROUNDS,
    WAKE_EARLIEST,
    WAKE_EARLY,
    WAKE_EARLY_EACH,
)

FINAL = frozenset({"delivered", "dead", "lapsed", "cancelled", "moved"})
WAITING = frozenset({"scheduled", "retrying"})
USER_ENDED = frozenset({"cancelled", "moved"})
"""Final states to which no owner brings an event."""
GOING = frozenset({"moving", "joining"})
"""States of a row whose event is on its way to another place; `changing` says how the two differ."""


NONE_BLOCKED: Mapping[str, Millis] = {}
"""No event waits for its ordering key."""
NEVER = -1
"""Value of `expires` for an event that no longer has one: a merge cannot remove a property."""


type EndState = Literal["delivered", "dead", "lapsed"]
"""The states in which an owner ends an event."""


class RowOutcome(NamedTuple):
    """The change that an attempt, or the decision not to make one, applies to its event row."""

    state: EndState | Literal["retrying", "scheduled"]
    props: Props
    answer: KeptAnswer | None = None
    """The head of the receiver's answer, if it is kept."""
    deadline: Millis | None = None
    """For work whose receiver was silent: the outcome applies while the work goes on, and its time is over at this time."""


def tally(states: Iterable[Value] | Mapping[Value, int]) -> Counts:
    """Count the rows by state. Every owner starts from these counts and never from a former owner's numbers.

    states: the state of each row, or the number of rows by state.
    """
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


def event_number(rk: str) -> int:
    """Return the number of an event in its shard."""
    return int(rk[1:])


def is_user_end(state: Value, props: Props) -> bool:
    """Return True if an event may be in this state without its owner: by a user, or by a receiver that worked on it."""
    return state in USER_ENDED or (WORK in props and state in FINAL)


def due_at(props: Props) -> Millis:
    """Return the next delivery time of an open event: its due time, or the time of its next attempt."""
    return int(props["next"]) if props["state"] == "retrying" else int(props["due"])


def punctual_at(props: Mapping[str, Any]) -> Millis:
    """Return the time up to which a delivery that starts is punctual.

    An event that was overdue when it was accepted, or that waits for its next attempt, is not late for that.
    """
    return max(int(props["due"]), int(props.get("next", 0)), int(props["created"]))


def needs_claim(props: Props, epoch: int) -> bool:
    """Return True if an owner of `epoch` must claim this row before it may deliver: it is unclaimed, or a former owner claimed it."""
    state = props["state"]
    return state in WAITING or (state == "firing" and props.get("epoch") != epoch)


def claim_props(props: Props, epoch: int) -> Props:
    """Return the row's change when it is claimed.

    Claiming an event that a former owner had claimed sets the flag for good, and adds an attempt with outcome `unknown`.
    """
    change: Props = {"state": "firing", "epoch": epoch, "tries": int(props.get("tries", 0)) + 1}
    if props["state"] == "firing":
        change["flag"] = True
        change["history"] = with_unknown(props)
    return change


def spread(tenant: str, name: str, flex: Millis) -> Millis:
    """Return the event's place in a window of `flex` milliseconds (more than 0).

    The place is a hash of the name: thousands of events due at one instant are spread evenly, and one event always has the same place.
    """
    return int.from_bytes(digest("flex", tenant, name)[:8]) % flex


def asked_due(props: Mapping[str, Any], due: Millis) -> Millis:
    """Return the requested due time of an event that is planned for `due`: its window starts there."""
    return due - int(props.get("shift", 0))


def last_call(props: Mapping[str, Any]) -> Millis | None:
    """Return the last instant at which the event may be delivered, or None. `expires` counts from the requested due time."""
    expires = int(props.get("expires", NEVER))
    return None if expires == NEVER else asked_due(props, int(props["due"])) + expires


def lapsed(props: Mapping[str, Any], now: Millis) -> bool:
    """Return True if `now` is after the last time at which the event may be delivered (`expires`)."""
    until = last_call(props)
    return until is not None and now > until


def lapse(props: Mapping[str, Any], change: Props) -> RowOutcome:
    """Return the end of an event that has outlived its `expires`. change: the changed properties.

    The error of an event with an unknown attempt says that it may have been delivered all the same.
    """
    if attempts.has_unknown({**props, **change}):
        before = f"{error}; " if (error := change.get("error")) else ""
        change = {**change, "error": f"{before}{attempts.MAY_HAVE_ARRIVED}"[: attempts.ERROR_LENGTH]}
    return RowOutcome("lapsed", change)


def send_for_free(props: Mapping[str, Any]) -> Props:
    """Return the row's change for a send that is numbered but does not count as an attempt of the retry policy."""
    return {"free": int(props.get("free", 0)) + 1}


_SAFER: tuple[Durability, ...] = ("fast", "standard", "mirrored")


def durability_of(floor: Durability | None, wish: Durability | None) -> Durability:
    """Return the durability of an event: the requested one, or its tenant's if that is safer; `standard` if neither is set."""
    if floor is None or wish is None:
        return wish or floor or "standard"
    return max(wish, floor, key=_SAFER.index)


def _interrupted(props: Props) -> Props:
    """Return the history of an event that ends without another claim: the attempt of the owner that had claimed it must be listed."""
    return {"history": with_unknown(props)} if props["state"] == "firing" else {}


type ChangeAnswer = Literal["yes", "already-firing", "already-final", "moving", "moved"]


def may_change(props: Props) -> ChangeAnswer:
    """Say if the row may be cancelled, moved or edited now.

    A row in state `firing` may be about to start at any owner, former ones included; `flag` says that a former owner might start it.
    """
    match props["state"]:
        case "moving" | "joining":
            return "moving"
        case "moved":
            return "moved"
        case "firing":
            return "already-firing"
        case "scheduled" | "retrying":
            return "already-firing" if props.get("flag") else "yes"
        case _:
            return "already-final"


def is_over(props: Mapping[str, Any]) -> bool:
    """Return True if the event, at its current place, has ended. A dead one may be redriven."""
    return props["state"] in FINAL and props["state"] != "moved"


def wake_of(rows: Iterable[Props]) -> Millis | None:
    """Return the time at which the shard must be served next: the earliest open event, or None if nothing is open."""
    return min((due_at(props) for props in rows if props["state"] not in FINAL), default=None)


def may_take(gate: Gate, age: Millis) -> bool:
    """Return True if a shard may be taken. age: milliseconds since its gate was written, by the store's own time."""
    return gate.state in ("open", "resting") or (gate.state == "owned" and age >= OWNER_SILENT)


class MessageState(NamedTuple):
    """The state of a shard's message, by its index row.

    state: of the row. resent: time at which the message was last sent again, or is to become visible; 0 for never. rounds: how many times
    it was sent again.
    """

    state: str
    wake: Millis
    resent: Millis = 0
    rounds: int = 0


def may_recover(message: MessageState, now: Millis, *, ended: bool, began: Millis = 0) -> bool:
    """Return True if a young process asks at once for an index row's shard: its message was sent and has become visible.

    ended: the process of its owner is proven to have ended. Otherwise its message may have been lost with a process, or wait in a long
    queue: one more message per shard is enough then, however many processes start. A shard that keeps ending its processes is left to the
    sweep and its growing pauses. began: start of the process: a queue that nobody polled before may still have the first message.
    """
    state, wake, resent, rounds = message
    if state != "sent" or resent + RECOVER_AFTER > now:
        return False
    return rounds < STEADY_ROUNDS and wake - WAKE_EARLIEST <= now if ended else rounds == 0 and max(wake, began) + RECOVER_AFTER <= now


class DispatchDecision(NamedTuple):
    """The sweep's decision about an index row."""

    do: Literal["send", "inspect", "nothing"]
    at: Millis = 0
    """Time at which the message is to become visible."""


def dispatch_decision(
    message: MessageState, now: Millis, *, paced: bool = False, events: int = 0, ahead: Millis = DISPATCH_AHEAD
) -> DispatchDecision:
    """Decide about one index row: send its message, check that its owner is alive, or do nothing.

    paced: the shard was handed out as part of a backlog. events: number of open events of the shard; 0 if it is not known.
    ahead: messages are sent this long before the wake-up.
    """
    state, wake, resent, rounds = message
    if wake > now + ahead:
        return DispatchDecision("nothing")
    if state != "sent":
        return DispatchDecision("send", visible_at(wake, events))
    return DispatchDecision("inspect") if now >= max(wake, resent) + pause_after(rounds, paced=paced) else DispatchDecision("nothing")


def pause_after(rounds: int, *, paced: bool = False) -> Millis:
    """Return the time for which an unserved shard is left alone after its message was sent again `rounds` times."""
    pause = backoff.exponential(OWNER_SILENT, max(0, rounds - STEADY_ROUNDS), LONGEST_RESEND_PAUSE, 20)
    return max(pause, BACKLOG_RESEND_PAUSE) if paced else pause


def in_backlog(due: Millis, now: Millis) -> bool:
    """Return True if an event due at `due` is so late that punctual events go first."""
    return due + BACKLOG_AFTER <= now


def visible_at(wake: Millis, events: int = 0) -> Millis:
    """Return the time at which a shard's message is to become visible. events: the number of events to load and claim before `wake`."""
    return wake - WAKE_EARLY - round(events * WAKE_EARLY_EACH)


def shared_wake(wake: Millis, events: int) -> Millis:
    """Return the wake-up for a shard's message: 0 for a shard with few events, which any process serves beside others."""
    return wake if events >= MANY_EVENTS else 0


def leaves_to_others(beside: int, load: int, passed: int, sender_load: int, early: Millis, *, alone: bool) -> bool:
    """Return True if a process leaves a full shard to another one, because it serves enough of them.

    beside: full shards of the same time that it serves; load: all full shards that it serves. passed: number of times that the shard was
    left to another process, the last time by one that served `sender_load`; a process that serves fewer takes it. early: time until the
    shard's wake-up. alone: no other process takes what this one leaves. The bound grows each time, so that processes get even shares
    however many shards there are.
    """
    if alone or early <= CLAIM_AHEAD or passed >= BURST_PASSES or load < BURST_FROM or load + BURST_FEWER <= sender_load:
        return False
    return beside >= BURST_SHARDS * BURST_GROWTH**passed


def held_within(early: Millis) -> float:
    """Return the longest time in seconds for which the message of a full shard is held before it is passed on.

    early: time until the shard's wake-up. Messages that are passed on at different times reach processes that poll at different times. The
    hold ends before the owner must claim, with time left for the next process.
    """
    return min(BURST_HELD_FOR, max(0.0, (early - CLAIM_AHEAD) / 1500))


def seems_alone(passed: int, returned: int, watched: float) -> bool:
    """Return True if most messages that a process has passed on have come back to it.

    watched: seconds since the first of them. Before the longest pause between two polls is over, other processes may not have polled.
    """
    return watched >= BURST_WATCHED_FROM and returned >= BURST_ALONE * passed


def opens_at(due: Millis, now: Millis, *, part: Millis = MINUTE, others: int = 0) -> Millis:
    """Return the wake-up of a shard opened now for an event due at `due`.

    part: length of the part of the minute that the shard is for, less than a minute if shards of the minute are full already.
    others: number of open shards of the same part that the event does not fit.

    The first few shards of a minute wake a little before their first event, so that events fit that are posted meanwhile and due a little
    earlier, but the owner of a lone event does not come long before it. Further shards of a future minute wake at its start, so that all
    its events fit; those of a crowded future minute at the start of a part of it, so that an owner that serves a full shard is busy for a
    part of the minute only. In the current minute, the time before the event is shorter the nearer the event is. If an owner must come at
    once, the wake-up is now.
    """
    start = due - due % MINUTE
    if start > now:
        if part < MINUTE:
            return due - due % part
        return start if others >= LONE_SHARDS else max(start, due - OPEN_BEFORE)
    soonest = now + WAKE_EARLY
    return now if due <= soonest else due - min((due - soonest) // 2, OPEN_BEFORE_MANY if others >= LONE_SHARDS else OPEN_BEFORE)


class Agenda(NamedTuple):
    """The owner's next steps with the rows that it knows."""

    claim: list[str]
    """Rows to claim now, the earliest first."""
    settle: dict[str, RowOutcome]
    """Rows to end without a delivery: lapsed, or given up."""
    look: Millis | None
    """Time at which the next event can be claimed, if the owner stays."""
    rest: Millis | None
    """Release the shard until then, because nothing is due soon or only retries and held events are left."""
    finished: bool
    """Nothing is open any more, and nothing is left to do."""
    retries: bool = False
    """No open event waits for its own due time: the wake-up is for retries and held events."""
    owed: Sequence[str] = ()
    """Ended events for which something is left to do: until it is done, the owner neither rests nor finishes the shard."""
    silent: tuple[str, ...] = ()
    """Rows whose receivers accepted long work and have not completed it in time, to be settled by `facets.long_work.silence`."""


def agenda(
    rows: Mapping[str, Props],
    epoch: int,
    now: Millis,
    policy: Callable[[Props], RetryPolicy],
    holds: Mapping[str, ClaimHold] = FREE,
    patience: Millis = REST_BEYOND,
    blocked: Mapping[str, Millis] = NONE_BLOCKED,
    owed: Sequence[str] = (),
) -> Agenda:
    """Decide the owner's next steps from the rows alone. Rows claimed under `epoch` are being delivered: they keep the shard.

    The rows of ended events may be left out.

    holds, by channel: held events stay as they are. A later round may claim them, a user may cancel them until then, and they do not keep
    the shard. patience: the owner waits this long for an event that is not due yet; for a retry it waits `REST_BEYOND` at most. The owner
    of a large shard waits for as long as its message comes early. blocked: events that wait for their ordering keys, with the time at which
    to look at each again; a time within `REST_BEYOND` keeps the shard. owed: see `Agenda`.
    """
    claim: list[tuple[Millis, str]] = []
    settle: dict[str, RowOutcome] = {}
    fresh: Millis | None = None
    retry: Millis | None = None
    held: Millis | None = None
    soonest: Millis | None = None
    working: Millis | None = None
    silent: list[str] = []
    running, opened, claimable = False, 0, now + CLAIM_AHEAD
    for rk, props in rows.items():
        state = props["state"]
        if state in FINAL:
            continue
        opened += 1
        # The first test spares a call of `needs_claim`: each step looks at all open rows of the shard, and most of them are claimed.
        if (state == "firing" and props.get("epoch") == epoch) or (state not in WAITING and not needs_claim(props, epoch)):
            running = True
            continue
        if state == "retrying" and work_of(props) is not None:
            # It is no retry before that, and does not lapse: the attempt was made in time.
            if (deadline := due_at(props)) <= now:
                silent.append(rk)
            else:
                working = _sooner(working, deadline)
            continue
        if "expires" in props and lapsed(props, now):
            settle[rk] = lapse(props, {"ended": now, **_interrupted(props)})
            continue
        if rk in blocked:
            until = last_call(props)
            look = blocked[rk] if until is None else min(blocked[rk], until + 1)
            held, soonest = _sooner(held, look), _sooner(soonest, look)
            continue
        if state == "firing":
            if given_up(props, policy(props)):
                error = "every owner that tried to deliver it ended before it reported a result"
                settle[rk] = RowOutcome("dead", {"ended": now, "error": error, **_interrupted(props)})
            else:
                claim.append((due_at(props), rk))
            continue
        if (due := due_at(props)) <= claimable:
            claim.append((due, rk))
        elif holds and (hold := holds.get(str(props["channel"]))) is not None and not hold.room and due < hold.until:
            held = _sooner(held, _look_again_at(props, hold))
        elif state == "retrying":
            retry = due if retry is None else min(retry, due)
        else:
            fresh = due if fresh is None else min(fresh, due)
    claim.sort()
    if holds:
        claim, until = _claimable_now(rows, claim, holds)
        held = _sooner(held, until)
    following, later = _sooner(fresh, retry), _sooner(held, working)
    idle = opened > 0 and not (claim or settle or silent or running or owed)
    stay = (fresh is not None and fresh <= now + patience) or (retry is not None and retry <= now + min(patience, REST_BEYOND))
    stay = stay or (working is not None and working <= now + min(patience, REST_BEYOND))
    stay = stay or (soonest is not None and soonest <= now + REST_BEYOND)
    # The message of a large shard comes earlier than that: an owner that rested then would be followed by the next one at once.
    stay = stay or (following is not None and visible_at(following, opened) <= now)
    return Agenda(
        claim=[rk for _, rk in claim],
        settle=settle,
        look=_sooner(None if following is None else following - CLAIM_AHEAD, later),
        # A shard's message comes before its wake-up because there is work to do before the due time. Held events need no such work, nor do
        # those whose receivers work on them.
        rest=_sooner(following, None if later is None else later + WAKE_EARLY) if idle and not stay else None,
        finished=not opened and not owed,
        retries=fresh is None,
        silent=tuple(silent),
        owed=owed,
    )


def _sooner(one: Millis | None, other: Millis | None) -> Millis | None:
    return other if one is None else one if other is None else min(one, other)


def _look_again_at(props: Props, hold: ClaimHold) -> Millis:
    """Return the time at which to look at a held event again: when its channel takes more, or to let it lapse."""
    until = last_call(props)
    return hold.until if until is None else min(hold.until, until + 1)


def _claimable_now(
    rows: Mapping[str, Props], claim: list[tuple[Millis, str]], holds: Mapping[str, ClaimHold]
) -> tuple[list[tuple[Millis, str]], Millis | None]:
    """Return the part of `claim` that may be claimed, and the time at which to look at the rest again."""
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
            held = _sooner(held, _look_again_at(rows[rk], hold))
    return [each for each in claim if each[1] not in left], held
