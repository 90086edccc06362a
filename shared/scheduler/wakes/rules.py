"""The decisions about wakes: pure functions of the plan, the index and the time.

A wake is a message of the shards' queue that names no shard. Whoever takes it looks at the index. On a platform whose groups of functions
go to zero, it does two things: it finds shards whose message nobody has sent, and it keeps an instance alive until the next message.

All times are milliseconds. The *message time* of a shard is the time at which its message becomes visible (`rules.visible_at`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...engine.row_codec import Format, RowCodec
from ..timings import DAY, DISPATCH_AHEAD, MINUTE, WAKE_EARLY

LOOK_BEFORE: Final[Millis] = 120_000
"""Time before a shard's message from which wakes are planned: the controller's pause (30 s at most), a cold start (15 s), and one wake that
is lost, twice over."""
GAP: Final[Millis] = 22_000
"""Longest pause between two messages in that time. An instance that has done nothing for 30 s may be taken away; 22 s leave room for the
whole seconds of a queue (1 s), a pause between two polls (2 s), and the 2 s of messages that shards share."""
GAP_MARGIN: Final[Millis] = 2_000
"""A pause before a shard's message is shorter than `GAP` by this: no wake would notice that it is too long."""
OWNER_STAYS: Final[Millis] = 3_000
"""Least time for which an owner works after the time of its message, which comes `WAKE_EARLY`. A pause begins only then."""
GAP_CLOSE: Final[Millis] = 12_000
"""The pause in place of `GAP`, once wakes have met cold processes although they came within `GAP`."""
GAP_NONE: Final[Millis] = 0
"""Stands for no pause, once wakes have met cold processes although they came within `GAP_CLOSE`: no pause is short enough to keep an
instance. Then no wakes fill pauses. The messages of shards come `EARLIER`, in time to start an instance, and their owners wait."""
EARLIER: Final[Millis] = 25_000 - WAKE_EARLY
"""Time by which messages then come earlier. The 25 s cover the controller's pause (10 s), a cold start (6 s, a fifth more at most), whole
seconds, and an owner's start."""
TAKEN_LATE: Final[Millis] = 2_000
"""A message comes up to this much after its time: two polls of an idle queue are this far apart."""
COMES_AFTER: Final[Millis] = 2_000
"""A wake counts as one that is still to come from this time on: the clocks of its sender and of the reader may each be a second wrong."""
DISPATCHED_WITHIN: Final[Millis] = 5_000
"""Time that a look needs before the message time of a shard that it finds."""
FOUND_BEFORE: Final[Millis] = 10_000
"""A wake comes this much before the message time of a shard that no look has sent: a whole second, two polls, and a look of a process that
has just started. The sweep, or the wakes in its place while it is silent, come each minute and find the shard half a minute before."""
ASKED_FROM: Final[Millis] = 2_000
"""A message that is this near starts an instance itself: no wake comes sooner."""
APART: Final[Millis] = 20_000
"""Time between the two wakes that are sent for one need: a single one may be lost with an instance that has fetched it."""
LOOK_EVERY: Final[Millis] = 300_000
"""Longest time between two wakes while the timer runs."""
LOOK_EVERY_ALONE: Final[Millis] = MINUTE
"""The same while the timer is silent."""
LOOKED_OLD: Final[Millis] = MINUTE
"""Age of the last look from which a process that starts looks itself."""
LOOKS_MISSING: Final[Millis] = 2 * MINUTE
"""Age of the last look from which the wakes of the plan count as lost: the sweep or, while it is silent, a wake looks each minute."""
LOOK_FAR: Final[Millis] = LOOK_EVERY + LOOK_BEFORE + 10_000
"""A look reads the index this far ahead, so that it knows what the look after it must find."""
MOST_WAKES: Final = 40
"""Most wakes still to come that the plan names."""
KEPT: Final[Millis] = MINUTE
"""Time for which the plan still names the last wake that has come: whoever reads it knows that an instance lives."""
WATCHED: Final = 20
"""Number of wakes of which the plan remembers whether they met a cold process."""
MOST_COLD: Final = 2
"""Wakes among them that may meet one."""
CLOSE_FOR: Final[Millis] = DAY
"""Time for which wakes then come within `GAP_CLOSE`, or messages `EARLIER`. After it `GAP` is tried again."""


class Plan(NamedTuple):
    """The wakes that are known to be queued. A hint that saves messages: safety is in the index and in the queue itself.

    looked: time of the last look. woke: time of the last look by a wake: an instance of the shards' queue was alive then. wakes: times of
    the wakes that were sent, in order. seen: the last wakes after a pause of at most the gap, `w` for a warm process and `c` for a cold
    one. close_until: time until which the gap is `GAP_CLOSE`. early_until: time until which it is `GAP_NONE`.
    """

    looked: Millis = 0
    woke: Millis = 0
    wakes: tuple[Millis, ...] = ()
    seen: str = ""
    close_until: Millis = 0
    early_until: Millis = 0

    def gap(self, now: Millis) -> Millis:
        """Return the longest pause between two messages that the platform is trusted with."""
        if now < self.early_until:
            return GAP_NONE
        return GAP_CLOSE if now < self.close_until else GAP

    def with_wakes(self, more: Iterable[Millis], now: Millis) -> Plan:
        """Return the plan with further wakes. Of those that have come it names the last one, of the others the nearest."""
        known = sorted({*self.wakes, *more})
        come = bisect_right(known, now)
        last = [each for each in known[max(0, come - 1) : come] if each > now - KEPT]
        # The nearest ones: a plan that has no room for them would make each look send them again.
        return self._replace(wakes=(*last, *known[come : come + MOST_WAKES]))

    def joined(self, other: Plan, now: Millis) -> Plan:
        """Return the plan with what another one knows: a later look, wakes that this one does not name, and a shorter pause."""
        latest = {name: max(getattr(self, name), getattr(other, name)) for name in ("looked", "woke", "close_until", "early_until")}
        return self.with_wakes(other.wakes, now)._replace(**latest)

    def trusted(self, began: Millis, now: Millis) -> Plan:
        """Return the plan for a look that began then: without the wakes to come, if nobody has looked for `LOOKS_MISSING`.

        Somebody may have removed them from the queue. Without this, nothing would replace them.
        """
        if began - self.looked < LOOKS_MISSING:
            return self
        return self._replace(wakes=tuple(each for each in self.wakes if each <= now))


NO_PLAN: Final = Plan()


def _times_of(text: str) -> tuple[Millis, ...]:
    return tuple(map(int, text.split(","))) if text else ()


PLAN: Final = RowCodec(Plan, formats={"wakes": Format(lambda wakes: ",".join(map(str, wakes)), lambda text: _times_of(str(text)))})


def is_covered(plan: Plan, message: Millis, now: Millis, gap: Millis, *, sent: bool, warm: bool = False) -> bool:
    """Return True if the wakes of the plan are enough for a shard's message. Call it after the index row is stored.

    message: the message time. sent: the caller sends the message itself, so that no look must find the shard. warm: the caller runs in an
    instance of the shards' queue, which is alive now.

    Only a wake in the future counts: one that is due now may have looked already, before the shard was filed.
    """
    if sent and message < now + ASKED_FROM:
        return True
    message = _judged(message, gap, sent=sent)
    later = [wake for wake in plan.wakes if wake > now + COMES_AFTER]
    if any(wake <= message - LOOK_BEFORE for wake in later):
        return True
    came = [plan.woke, *(wake for wake in plan.wakes if wake <= now), *((now,) if warm else ())]
    alive_until = max(came) + gap + TAKEN_LATE
    if sent and message <= alive_until:
        return True
    return any(wake <= alive_until and wake <= message - DISPATCHED_WITHIN for wake in later)


def wakes_for(message: Millis, now: Millis, gap: Millis, *, sent: bool, warm: bool = False) -> tuple[Millis, ...]:
    """Return the times of the wakes for a shard's message that is not covered. The parameters are those of `is_covered`.

    The first comes within the time between two looks, because the plan names no other, and a queue hides no message for more than a week.
    """
    message = _judged(message, gap, sent=sent)
    # A wake finds the shard only if it comes before its message.
    last = message - DISPATCHED_WITHIN
    first = max(now, min(message - LOOK_BEFORE, now + LOOK_EVERY), min(now + gap, last) if warm else now)
    if sent and message <= first + gap + TAKEN_LATE:
        return (first,)
    # No later than the gap, so that the plan covers further messages of this time.
    return first, max(first, min(first + min(APART, gap or APART), last))


def _judged(message: Millis, gap: Millis, *, sent: bool) -> Millis:
    """Return the message time of a shard, as the look that sends its message will choose it."""
    return message if sent or gap != GAP_NONE else message - EARLIER


def planned_wakes(
    plan: Plan,
    messages: Sequence[Millis],
    unsent: Iterable[Millis],
    now: Millis,
    gap: Millis,
    *,
    alive: bool,
    alone: bool,
    beside: Iterable[Millis] = (),
) -> list[Millis]:
    """Return the times of the wakes that a look sends, in order.

    messages: message times of the shards in the shards' queue, up to `DISPATCH_AHEAD` ahead, sent or not. unsent: message times of all
    shards whose message is not sent after this look, those of retries included. alive: the look runs in an instance of the shards' queue.
    alone: the timer is silent. beside: message times of further events, beside which a wake costs less. Nothing depends on them: an event
    may be cancelled.

    No pause between two messages is longer than `gap` in the last `LOOK_BEFORE` before each of `messages`, unless it is `GAP_NONE`. Two
    wakes are always queued, the first of them before any shard in `unsent` needs one, and both within the time between two looks, or
    `APART` later.
    """
    ahead = sorted(each for each in messages if each > now)
    near = ahead[: bisect_right(ahead, now + DISPATCH_AHEAD)]
    queued = sorted(wake for wake in plan.wakes if wake > now + COMES_AFTER)
    filled = gap != GAP_NONE
    cheap = sorted({*ahead, *(each for each in beside if each > now)})
    alive_at = now if alive else plan.woke if plan.woke > now - gap else -math.inf
    new = _between(near, queued, cheap, now, gap, alive_at) if filled else []
    times = sorted([*queued, *new])
    # For the messages up to `DISPATCH_AHEAD` ahead the wakes are planned: their shards must only be found in time.
    needs = (
        max(now + APART, message - (FOUND_BEFORE if filled and message <= now + DISPATCH_AHEAD else LOOK_BEFORE + DISPATCHED_WITHIN))
        for message in unsent
        if message > now
    )
    every = LOOK_EVERY_ALONE if alone else LOOK_EVERY
    next_look = min(now + every, min(needs, default=math.inf))
    if not times or times[0] > next_look + 1_000:
        new.append(_beside(cheap, now + APART, round(next_look)))
        times.insert(0, new[-1])
    # If the first is lost, the second comes hardly later than the next look would have done without it.
    second = round(max(times[0] + APART, next_look))
    latest = max(second, min(second + APART, now + every))
    if len(times) < 2 or times[1] > latest:
        new.append(_beside(cheap, times[0] + APART, second, latest))
    return sorted(new)


def _beside(cheap: Sequence[Millis], first: Millis, last: Millis, latest: Millis = 0) -> Millis:
    """Return the last of some times from `first` to `last`; else the next one up to `latest`; else `last`.

    A wake beside a shard's message costs little: the instance is billed while the owner waits for its event.
    """
    index = bisect_right(cheap, last)
    if index and cheap[index - 1] >= first:
        return cheap[index - 1]
    return cheap[index] if index < len(cheap) and cheap[index] <= latest else last


def _between(
    near: Sequence[Millis], queued: Iterable[Millis], cheap: Sequence[Millis], now: Millis, gap: Millis, alive: float
) -> list[Millis]:
    """Return the wakes that fill the pauses before the messages `near`, beside `cheap` times if there are some. alive: time at which an
    instance was alive; -inf if unknown."""
    shards = frozenset(near)
    points = sorted({*near, *queued})
    new: list[float] = []
    before = alive
    for point in points:
        # The earliest of the messages from here on asks for the longest time without a pause.
        index = bisect_left(near, point)
        if index == len(near):
            break
        since = near[index] - LOOK_BEFORE
        stays = OWNER_STAYS if before in shards else 0
        if stays and point not in shards and point <= before + stays:
            # The shard's owner works for longer than this wake.
            continue
        last, longest = (gap - GAP_MARGIN, gap - GAP_MARGIN) if point in shards else (gap, gap + stays)
        if point > since and point - before > longest:
            if before >= since:
                fill = _fill(before + stays, point, gap, last, cheap)
            else:
                # Backwards from the point, until there is one before the time that must have no pause.
                fill = [point - last - gap * step for step in range(math.ceil((point - last - since) / gap) + 1)]
            new += [each for each in fill if each > max(now + COMES_AFTER, before)]
        before = point
    return list(map(round, new))


def _fill(before: float, point: Millis, gap: Millis, last: Millis, cheap: Sequence[Millis]) -> list[float]:
    """Return the times of the wakes, one at least, that fill the pause between two messages: at cheap times, else in even steps.

    last: the longest pause before `point`. Where an even one would be longer, the others share the rest.
    """
    found: list[float] = []
    while not found or point - before > last:
        pause = point - before
        parts = max(2, math.ceil((pause + gap - last) / gap))
        step = max(pause // parts, (pause - last) // (parts - 1))
        index = bisect_right(cheap, min(before + gap, point - 1)) - 1
        cheaper = index >= 0 and cheap[index] >= before + gap / 2
        before = cheap[index] if cheaper else before + step
        found.append(before)
    return found


def after_wake(plan: Plan, at: Millis, now: Millis, started: Millis) -> Plan:
    """Return the plan after a wake for the time `at` was taken by a process that started at `started`.

    It remembers if the process began for this wake, although the wake before it was at most the gap ago: then the platform took the
    instance away in between. If that happened too often, the wakes come closer together for a day; if it happens then, too, messages come
    `EARLIER`. A process that began before the wake's time does not count: the platform also starts processes for other messages.
    """
    gap = plan.gap(now)
    if gap == GAP_NONE or not plan.woke <= at <= plan.woke + gap + 1_000:
        return plan
    seen = (plan.seen + ("c" if started > at else "w"))[-WATCHED:]
    if seen.count("c") <= MOST_COLD:
        return plan._replace(seen=seen)
    close = plan._replace(seen="", close_until=now + CLOSE_FOR)
    return close if gap == GAP else close._replace(early_until=now + CLOSE_FOR)
