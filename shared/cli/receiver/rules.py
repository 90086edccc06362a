"""The judgement of a run: observations -> one line for each check. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ...core.readable import count_of, readable_duration
from ..findings import Line, faults_of
from .duplicate_rules import again_line, duplicates
from .judging import ms_text, not_checked, taken
from .plan import STEPS, Check, CheckPlan
from .seen import ReceiverSeen
from .signature_rules import judge_bytes, judge_rotation, judge_signature, judge_text, judge_timestamp
from .transport_rules import judge_connections, judge_empty, judge_headers, judge_idle, judge_large, judge_slow

EXPIRES_SOON: Final = 14.0
"""Days before its end from which a certificate should have been renewed."""
LONGEST_VALID: Final = 300.0
"""Seconds for which a signature is valid."""
SOME_SKEW: Final = 2.0
WRONG_SKEW: Final = 60.0
"""Seconds by which a clock may be wrong: some, and too many. Signatures are valid for 300 seconds."""


def judge(seen: ReceiverSeen, plan: CheckPlan, checks: Collection[Check]) -> list[Line]:
    """Return the lines, in the order in which a reader looks for a cause."""
    lines = [*_certificate(seen), *_delivery(seen, plan)]
    if seen.owner:
        lines.insert(0, Line("owner", "ok", seen.owner))
    if not _works(seen):
        if seen.stopped and not faults_of(lines):
            lines.append(Line("run", "bad", seen.stopped, "Nothing was checked.", "Run the command again."))
        return lines
    lines += [_clock(seen), _time(seen, plan), *_rate(seen), *_answers(seen), judge_connections(seen)]
    by_check = {
        Check.SIGNATURE: judge_signature,
        Check.TIMESTAMP: judge_timestamp,
        Check.ROTATION: judge_rotation,
        Check.BYTES: judge_bytes,
        Check.TEXT: judge_text,
        Check.EMPTY: judge_empty,
        Check.LARGE: judge_large,
        Check.HEADERS: judge_headers,
        Check.SLOW: judge_slow,
        Check.IDLE: judge_idle,
    }
    for check in Check:
        if check in checks and check in by_check:
            lines.append(by_check[check](seen) or not_checked(str(check), seen))
    lines += [again_line(seen)] if plan.again else duplicates(seen, checks)
    lines = [_unless_throttled(line, seen) for line in lines]
    if seen.stopped:
        do = "See the lines above, then run it again."
        if "unused connection" in seen.stopped:
            do = "Serve several connections at once: Tocsin keeps some open, and delivers over others meanwhile."
        lines.append(Line("run", "bad", seen.stopped, "The run ended before all checks.", do))
    return lines


def _unless_throttled(line: Line, seen: ReceiverSeen) -> Line:
    """Return the line, or another one if the receiver refused all requests of the check as too many."""
    if line.check not in STEPS or not seen.throttled(steps := STEPS[Check(line.check)]):
        return line
    if line.check in (Check.SIGNATURE, Check.TIMESTAMP) and any(taken(seen, name) for name in steps if name != "after forged"):
        # One accepted request proves the fault, whatever the answers to the others would have been.
        return line
    means = "The endpoint limits the rate of requests, so this check says nothing."
    do = "Run the command again with a lower --rate."
    return Line(line.check, "unseen", "refused as too many requests", means, do, line.figures)


def _rate(seen: ReceiverSeen) -> Iterator[Line]:
    answers = [each for step in seen.steps.values() for each in step.answers]
    if some := [each for each in answers if each.throttled]:
        found = f"{len(some)} of {count_of(len(answers), 'delivery', 'deliveries')} refused as too many: {some[0].text}"
        means = "The endpoint limits the rate of requests. The service tries to deliver such events again later."
        do = "Give a lower --rate here, and set the channel's limits to a rate that the endpoint accepts."
        yield Line("rate", "look", found, means, do, {"refused": len(some)})


def _works(seen: ReceiverSeen) -> bool:
    """Return True if the receiver accepted a valid delivery, at least by its own clock."""
    return any(answer is not None and answer.accepted for answer in (seen.first("delivery"), seen.first("delivery by its clock")))


def _certificate(seen: ReceiverSeen) -> Iterator[Line]:
    found = seen.certificate
    if found is None:
        return
    if found.error:
        means = "The service checks certificates, so no delivery reaches this endpoint."
        do = "Present a certificate for this name, from a public authority, with its intermediate certificates (the full chain)."
        yield Line("certificate", "bad", f"refused: {found.error}", means, do)
    elif found.days is not None and found.days < EXPIRES_SOON:
        means = "From then on, no delivery reaches this endpoint."
        left = f"expires in {readable_duration(found.days * 86_400_000)}"
        yield Line("certificate", "look", left, means, "Renew it, and look why that was not done automatically.", {"days": int(found.days)})
    elif found.days is not None:
        yield Line("certificate", "ok", f"valid for {int(found.days)} days", figures={"days": int(found.days)})


_REFUSED_DO: Final = {
    400: "Give --payload with a payload that the endpoint takes, and check that TOCSIN_SECRET is the endpoint's secret.",
    401: "Check that TOCSIN_SECRET is the endpoint's secret, and that it verifies the bytes of the body as they arrive.",
    403: "Check that TOCSIN_SECRET is the endpoint's secret, and that no gateway in front of it wants more (--header NAME=VALUE).",
    404: "Check the path of the URL.",
    405: "Check the path of the URL, and --method.",
    410: "The endpoint says that it wants no more deliveries. Check the path of the URL.",
    422: "Give --payload with a payload that the endpoint takes.",
    429: "The endpoint limits the rate of requests. Run the command later, with a lower --rate.",
}


def _delivery(seen: ReceiverSeen, plan: CheckPlan) -> Iterator[Line]:
    first, shifted = seen.first("delivery"), seen.first("delivery by its clock")
    if first is None:
        return
    figures = {"status": first.status, "ms": round(first.ms)}
    if first.accepted:
        if not plan.again and seen.effects("delivery") == 0 and first.duplicate:
            means = "The receiver says that it knew this event. The same --seed was used before, or it compares payloads instead of ids."
            do = "Run it without --seed. To check that ids survive a restart, give --again."
            yield Line("delivery", "look", f"{first.text}, without an effect", means, do, {**figures, "effects": 0})
            return
        yield Line("delivery", "ok", f"{first.text} in {ms_text(first.ms)}", figures=figures)
        return
    if shifted is not None and shifted.accepted:
        means = "A valid delivery is only accepted with a time stamp by the receiver's own, wrong clock."
        yield Line("delivery", "look", first.text, means, "See the line about the clock.", figures)
        return
    if first.status is None:
        found = first.failure
        means = "The service would try again, and in the end make a dead letter of the event."
        do = "Look at the endpoint's log of this moment."
        if first.timed_out:
            do = f"Answer within {plan.timeout:g} s: store the work, answer 2xx, and do it afterwards."
        yield Line("delivery", "bad", found, means, do, figures)
        return
    if 300 <= first.status < 400:
        means = "Deliveries do not follow redirects: the target was not checked when the channel was made."
        yield Line("delivery", "bad", f"{first.text}, a redirect", means, "Use the target of the redirect as the URL.", figures)
        return
    means = "The service makes a dead letter of the event at once." if first.outcome == "final" else "The service would try again."
    do = _REFUSED_DO.get(first.status, "Look at the endpoint's log of this moment.")
    yield Line("delivery", "bad", first.text, f"{means} Nothing else was checked.", do, figures)


def _clock(seen: ReceiverSeen) -> Line:
    offset = seen.offset
    if not offset.known:
        means = "The answers have no Date, so the receiver's clock was not compared."
        return Line("clock", "unseen", "no Date in the answers", means, "Nothing, if its time is synchronized. Old time stamps show more.")
    ahead = offset.low if offset.low > 0 else min(0.0, offset.high)
    figures = {"ahead_s": round(ahead, 1)}
    if abs(ahead) < SOME_SKEW:
        return Line("clock", "ok", "agrees with this machine's", figures=figures)
    found = f"{readable_duration(round(abs(ahead)) * 1000)} {'ahead of' if ahead > 0 else 'behind'} this machine's"
    do = "Switch on time synchronization (NTP) where the receiver runs, or on this machine."
    if abs(ahead) < WRONG_SKEW:
        return Line("clock", "look", found, "Signatures are valid for 300 s on both sides: less is left.", do, figures)
    if abs(ahead) > LONGEST_VALID and _keeps_time(seen):
        means = "The receiver accepts only current time stamps, so its clock is right: the Date comes from something else, such as a proxy."
        return Line("clock", "look", f"{found}, by the Date of its answers", means, "Correct the clock of the proxy.", figures)
    means = "With a clock that is wrong by 300 s, a receiver refuses all deliveries; before that, it accepts older copies than it should."
    return Line("clock", "bad", found, means, do, figures)


def _keeps_time(seen: ReceiverSeen) -> bool:
    """Return True if the receiver accepts time stamps of this machine's clock, and neither old nor future ones."""
    first, others = seen.first("delivery"), [seen.first(name) for name in ("old", "future")]
    return first is not None and first.accepted and all(each is not None and not each.accepted and not each.broken for each in others)


def _time(seen: ReceiverSeen, plan: CheckPlan) -> Line:
    # A slow body is slow because of its sender.
    times = [each.ms for name, step in seen.steps.items() if name != "slow" for each in step.answers if each.status is not None]
    ordered = sorted(times)
    middle, last, limit = ordered[len(ordered) // 2], ordered[-1], plan.timeout * 1000
    figures = {"p50_ms": round(middle), "max_ms": round(last), "limit_ms": round(limit)}
    found = f"p50 {ms_text(middle)}, max {ms_text(last)}; the limit is {ms_text(limit)}"
    do = "Store the work and answer 2xx, then do it; or use long work (docs/how-to/long-work.md); or raise the channel's timeout."
    if last >= limit:
        means = "The service does not wait that long: the attempt counts as failed, and the event is delivered again."
        return Line("answer time", "bad", found, means, do, figures)
    if last >= limit / 2:
        return Line("answer time", "look", found, "A slower moment makes attempts fail, and events come twice.", do, figures)
    return Line("answer time", "ok", found, figures=figures)


def _answers(seen: ReceiverSeen) -> Iterator[Line]:
    answers = [each for step in seen.steps.values() for each in step.answers if each.status is not None]
    if any(each.retry_after is False for each in answers):
        means = "The service ignores it, and tries again after its own times."
        do = "Send whole seconds, or a date of HTTP (RFC 9110)."
        yield Line("retry-after", "look", "Retry-After cannot be read", means, do)
    elif later := [each.retry_later for each in answers if each.retry_later]:
        yield Line("retry-after", "ok", f"asks for {readable_duration(round(max(later) * 1000))}", figures={"seconds": max(later)})
    if any(each.unread for each in answers):
        means = "The service reads 64 KiB for a second, then closes the connection. Each delivery needs a new one."
        yield Line("answer body", "look", "too long, or never over", means, "Answer with a short body, or with none (204).")
