"""The judgement of duplicates. Pure functions.

Statuses do not show what a receiver did. What it did is seen by a count of effects (`--count-url`), or by the header `tocsin-duplicate` of
its answers; without both, the lines say that it cannot be seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from ...core.readable import count_of, readable_duration
from ..findings import Line
from .plan import Check
from .seen import Observed, ReceiverSeen

_STORE: Final = "Store the id (webhook-id) in the transaction that does the work; see docs/how-to/exactly-once.md."
_BLIND: Final = "cannot be seen from outside"
_BLIND_MEANS: Final = "The answers are the same whether the work was done again or not."
_BLIND_DO: Final = (
    "Make it visible: answer with the header tocsin-duplicate: yes or no, or give --count-url with an address that says how often "
    "the work of an event was done."
)


def duplicates(seen: ReceiverSeen, checks: Collection[Check]) -> Iterator[Line]:
    """Yield the lines about duplicates and effects."""
    yield from _effects(seen)
    again = _again(seen, "duplicates", "duplicate", "A second copy of an event") if Check.DUPLICATES in checks else None
    done_twice = again is not None and again.result == "bad" and (seen.effects("duplicate") or 0) > 0
    if again is not None:
        yield again
    if Check.PARALLEL in checks:
        yield _unknown("parallel") if done_twice else _parallel(seen)
    if Check.LATE in checks:
        yield _unknown("late") if done_twice else _again(seen, "late", "late", "A retry some time later")
    if Check.CE_ID in checks:
        yield _ce_id(seen, done_twice=done_twice)
    yield from _same_payload(seen)


def again_line(seen: ReceiverSeen) -> Line:
    """Return the line about events of an earlier run with the same seed."""
    effects = [seen.effects("delivery"), seen.effects(_second(seen))]
    figures = {"effects": effects}
    if None in effects:
        return _blind("again")
    if 0 in [step.before for name in ("delivery", _second(seen)) if (step := seen.steps.get(name)) is not None] and not any(effects):
        means = "The count does not know the events of an earlier run, and did not change."
        return Line("again", "unseen", "the count is 0", means, "Check --count-url, and that the run before had the same --seed.", figures)
    if any(effects):
        means = "The receiver does not know the events of an earlier run. After a restart, it does the work of a late retry again."
        do = f"{_STORE} Was the run before made with the same --seed?"
        return Line("again", "bad", "the work of an earlier run was done again", means, do, figures)
    return Line("again", "ok", "both events of an earlier run are still known", figures=figures)


def _effects_of(seen: ReceiverSeen, step: str) -> int | None:
    """Return the effects of a step; None if they cannot be seen, or nothing at all had an effect."""
    if seen.effects("delivery") == 0 and seen.effects(_second(seen)) == 0:
        return None
    return seen.effects(step)


def _second(seen: ReceiverSeen) -> str:
    return "second again" if "second again" in seen.steps else "second"


def _blind(name: str) -> Line:
    return Line(name, "unseen", _BLIND, _BLIND_MEANS, _BLIND_DO)


def _unknown(name: str) -> Line:
    return Line(name, "unseen", "no duplicates are recognized", "This check says nothing then.", "See the line about duplicates.")


def _missing(name: str) -> Line:
    return Line(name, "unseen", "not checked", "The run ended before it.", "Run the command again.")


def _refused(name: str, answer: Observed, subject: str) -> Line | None:
    """Return a line if a duplicate was not accepted; None if it was."""
    if answer.accepted:
        return None
    if answer.outcome == "final":
        means = f"{subject} was refused for good. An event whose answer was lost becomes a dead letter, although its work is done."
    else:
        means = f"{subject} was refused. An event whose answer was lost is tried again for days, and becomes a dead letter."
    do = "Answer 2xx if the id is there already and its work is done."
    return Line(name, "bad", answer.text, means, do, {"status": answer.status})


def _again(seen: ReceiverSeen, name: str, step: str, subject: str) -> Line:
    answer = seen.first(step)
    if answer is None:
        return _missing(name)
    if refused := _refused(name, answer, subject):
        return refused
    effects = _effects_of(seen, step)
    figures = {"status": answer.status, "effects": effects}
    if effects is None:
        return _blind(name)
    if effects > 0:
        means = f"{subject} was worked on again. Delivery is at least once, so this will happen."
        return Line(name, "bad", "the work was done again", means, _STORE, figures)
    return Line(name, "ok", f"{answer.text}, and the work was not done again", figures=figures)


def _parallel(seen: ReceiverSeen) -> Line:
    step = seen.steps.get("parallel")
    if step is None:
        return _missing("parallel")
    accepted = [each for each in step.answers if each.accepted]
    broken = [each for each in step.answers if each.broken]
    later = len(step.answers) - len(accepted) - len(broken)
    effects = _effects_of(seen, "parallel")
    figures = {"copies": len(step.answers), "accepted": len(accepted), "failed": len(broken), "effects": effects}
    copies = f"{len(step.answers)} copies at once"
    if not accepted:
        means = "No copy was accepted. The service would try again."
        return Line("parallel", "bad", f"{copies}: {step.answers[0].text}", means, "Look at the endpoint's log of this moment.", figures)
    if effects is not None and effects > 1:
        means = "Two attempts at one event can overlap, and the receiver looks for the id before another one has stored it."
        do = "Let the store decide: a unique key on the id, inserted in the transaction that does the work."
        return Line("parallel", "bad", f"{copies}: the work was done {effects} times", means, do, figures)
    if broken:
        means = "Copies that meet fail. The service tries again, so no event is lost, but your alarms will ring."
        found = f"{copies}: {count_of(len(broken), 'failure')}, such as: {broken[0].text}"
        return Line("parallel", "look", found, means, "Catch the conflict of the unique key, and answer 2xx.", figures)
    if effects is None:
        return _blind("parallel")
    rest = f", {later} told to come later" if later else ""
    return Line("parallel", "ok", f"{copies}: the work was done {'once' if effects else 'at no copy'}{rest}", figures=figures)


def _ce_id(seen: ReceiverSeen, *, done_twice: bool) -> Line:
    answer = seen.first("other ce-id")
    if answer is None:
        return _missing("ce-id")
    effects = _effects_of(seen, "other ce-id")
    figures = {"status": answer.status, "effects": effects}
    if not answer.accepted:
        return Line("ce-id", "ok", f"a copy with another ce-id was refused: {answer.text}", figures=figures)
    if done_twice:
        return _unknown("ce-id")
    if effects is None:
        return _blind("ce-id")
    if effects > 0:
        means = "The receiver recognises duplicates by ce-id, which is unsigned: anybody who recorded a delivery can repeat its work."
        return Line("ce-id", "bad", "the work was done again", means, "Use webhook-id, which the signature covers.", figures)
    return Line("ce-id", "ok", "a copy with another ce-id was not worked on again", figures=figures)


def _same_payload(seen: ReceiverSeen) -> Iterator[Line]:
    """Yield a line about a second event with the same payload."""
    name = _second(seen)
    answer, effects = seen.first(name), seen.effects(name)
    if answer is None or not answer.accepted or effects is None or (seen.effects("delivery") == 0 and not effects):
        # No event had an effect that could be seen, so the absence of one for the second event proves nothing.
        return
    if effects == 0 and "second again" in seen.steps and (seen.effects("second") or 0) > 0:
        effects = 1
    figures = {"effects": effects}
    if effects == 0:
        means = "Another event with the same payload was taken for a duplicate. Real events are lost."
        do = "Compare ids (webhook-id), not bodies or hashes of them."
        yield Line("same payload", "bad", "a second event had no effect", means, do, figures)
    else:
        yield Line("same payload", "ok", "two events with one payload were both worked on", figures=figures)


def _effects(seen: ReceiverSeen) -> Iterator[Line]:
    """Yield lines about the count, and about the moment at which the work is done."""
    if seen.count_error:
        means = "The count of effects could not be read any more, so some lines cannot say what the receiver did."
        if seen.count_throttled:
            yield Line("count", "look", f"{seen.count_error}: too many requests", means, "Run the command again with a lower --rate.")
        else:
            yield Line("count", "bad", seen.count_error, means, "Let --count-url answer 200 with a number, or a list.")
        return
    step = seen.steps.get("delivery")
    if step is None or step.prompt is None or step.done is None:
        return
    if step.done > 0 and step.prompt == 0:
        lag = "" if step.lag is None else f" after {readable_duration(round(step.lag * 1000))}"
        means = "The answer came before the work. If the receiver ends in between, and the work was not stored, the event is lost."
        do = "Store the work, or a message of a queue, before you answer 2xx. If it is stored, all is well."
        yield Line("effect", "look", f"the count changed{lag}, behind the answer", means, do, {"lag_s": step.lag})
    elif step.done > 0:
        yield Line("effect", "ok", "the work was done when the answer came")
    elif step.first.accepted and not step.first.duplicate and not seen.effects(_second(seen)):
        means = "The count did not change with accepted deliveries: they are not worked on, later than this, or counted elsewhere."
        yield Line(
            "effect",
            "bad",
            "the count did not change",
            means,
            "Check --count-url, the endpoint's log, and that --seed was not used before.",
        )
