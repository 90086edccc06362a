"""Functions that the rules of several checks share. They are pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.readable import readable_duration
from ..findings import Line
from .seen import Observed, ReceiverSeen


def not_checked(name: str, seen: ReceiverSeen) -> Line:
    """Return the line of a check that the run did not come to."""
    return Line(name, "unseen", "not checked", "The run ended before it.", "Run the command again.")


def taken(seen: ReceiverSeen, name: str) -> bool:
    """Return True if a request was accepted, unless the count shows that its work was left out.

    The count decides only if the work of a valid delivery is done when its answer comes: other work may follow after the count was read.
    """
    answer, valid = seen.first(name), seen.steps.get("delivery")
    at_once = valid is not None and bool(valid.prompt) and valid.prompt == valid.done
    return answer is not None and answer.accepted and not (at_once and seen.effects_counted(name) == 0)


def verifies(seen: ReceiverSeen) -> bool:
    """Return False if the receiver certainly accepted requests that nobody signed."""
    found = [taken(seen, name) for name in ("forged", "unsigned") if seen.first(name) is not None]
    return not (found and all(found))


def failed(name: str, subject: str, answer: Observed) -> Line:
    """Return the line of a valid request that the receiver answered with a failure: the cause is not its signature."""
    means = "The receiver fails for such a valid delivery, or failed by chance. The service would try again."
    return Line(name, "bad", f"{subject}: {answer.text}", means, "Look at the endpoint's log of this moment, and run the command again.")


def names(found: Sequence[tuple[str, Observed]]) -> str:
    return ", ".join(f"{name}: {answer.text.removeprefix('answered ')}" for name, answer in found)


def all_of(seen: ReceiverSeen, *names: str) -> list[tuple[str, Observed]] | None:
    """Return the answers of steps by their names; None if the run did not come to all of them."""
    found = [(name, answer) for name in names if (answer := seen.first(name)) is not None]
    return found if len(found) == len(names) else None


def ms_text(millis: float) -> str:
    """Return milliseconds, as measured, for people."""
    return readable_duration(round(millis))
