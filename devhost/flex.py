"""The rules by which Flex Consumption starts and ends the instances of an app, and by which refused connections end a host.

Pure decisions, and the settings that `DEVHOST_FLEX` and `DEVHOST_REFUSED` hold. Sources: of the poll, durable-extension#391; of the idle
time, Azure-Functions#2581; of the visible message and of the length, `QueueMetricsProvider` and `QueueTargetScaler` of the storage
extension; of the ten minutes, azure-functions-host#10373; of refused connections, a Functions host 4.1037 as it was observed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

type Ticks = Literal["ahead", "never"] | float
"""The time at which the controller starts the group of a timer: ahead of each tick, never, or that many seconds after the tick."""


class RuleError(ValueError):
    """A setting of these rules is wrong; the message names it."""


@dataclass(frozen=True)
class FlexRules:
    """The platform's rules for instances. Times in seconds."""

    idle: float = 30.0
    """Time without an invocation after which an instance goes away."""
    cold: float = 0.0
    """Time of a start, beside what the process itself takes."""
    poll: float = 10.0
    """Time between two looks of the controller at a queue."""
    most: int = 4
    """The largest number of instances of a group. The platform's default is 100, which is too much for one machine."""
    ticks: Ticks = "ahead"
    hidden: float = 600.0
    """Time for which the messages that a host had taken stay hidden after its end."""
    stuck: float = 0.0
    """Share of messages that are taken by an instance which goes away before it begins them."""

    def __post_init__(self) -> None:
        for name in ("idle", "poll", "hidden"):
            if getattr(self, name) <= 0:
                raise RuleError(f"{name} must be more than 0")
        if self.cold < 0 or self.most < 1 or not 0 <= self.stuck <= 1 or (isinstance(self.ticks, float) and self.ticks < 0):
            raise RuleError("cold and ticks must be at least 0, most at least 1, stuck 0 to 1")

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Rules from a text such as `idle=30,cold=4`; None for '' and `off`. `on` stands for the platform's own. Raises RuleError."""
        given = read_rules(text, cls)
        return None if given is None else cls(**given)


@dataclass(frozen=True)
class RefusalRules:
    """The rules for a storage endpoint that refuses connections. Times in seconds."""

    ends: float = 26.0
    """Time of the six tries of a queue listener, and of the renewal of a timer's lease, after which the host ends."""
    again: float = 3.0
    """Time between the end of a host and the start of the next."""
    start: float = 30.0
    """Time that a start takes while the account with the lease of the timers refuses connections."""
    timers: float = 40.0
    """Time between two tries to get that lease, for a host that has started without it."""

    def __post_init__(self) -> None:
        if min(self.ends, self.timers) <= 0 or min(self.again, self.start) < 0:
            raise RuleError("ends and timers must be more than 0, again and start at least 0")

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Rules from a text such as `ends=4,again=1`; None for `off`. '' and `on` stand for the host's own. Raises RuleError."""
        given = read_rules(text or "on", cls)
        return None if given is None else cls(**given)


def wanted_instances(*, visible: bool, length: int, each: int, most: int) -> int:
    """Return the number of instances that the controller wants for a queue.

    visible: a peek has found a message. length: messages of the queue, hidden ones included. each: messages that one instance takes.
    """
    return min(most, max(1, math.ceil(length / each))) if visible else 0


def goes_away(idle_for: float, running: int, rules: FlexRules) -> bool:
    """Return True if an instance goes to zero. running: its invocations; idle_for: seconds since the last one has ended."""
    return running == 0 and idle_for >= rules.idle


def starts_for_tick(tick: float, rules: FlexRules, takes: float) -> float | None:
    """Return when the controller starts the group of a timer for a tick, or None. takes: seconds that a start takes."""
    if rules.ticks == "never":
        return None
    return tick - rules.cold - takes if rules.ticks == "ahead" else tick + float(rules.ticks)


class RefusedTries:
    """The tries of one listener, or of one lease, against one endpoint."""

    def __init__(self, ends: float) -> None:
        """ends: seconds of refusals without an answer after which the host ends."""
        self._ends = ends
        self._since: float | None = None

    def refused(self, now: float) -> bool:
        """Note a refused connection; return True if the host ends. now: monotonic seconds."""
        if self._since is None:
            self._since = now
        return now - self._since >= self._ends

    def answered(self) -> None:
        """Note an answer, whatever it says: 5xx is forgiven."""
        self._since = None


def read_rules(text: str, kind: type) -> dict[str, Any] | None:
    """Return the values that a text gives, by name; None for '' and `off`. kind: the dataclass that has these fields."""
    if text in ("", "0", "off"):
        return None
    if text in ("1", "on"):
        return {}
    kinds: Mapping[str, Any] = {field.name: field.type for field in fields(kind)}
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in kinds:
            raise RuleError(f"{name!r} is none of {', '.join(kinds)}")
        try:
            found[name] = int(value) if kinds[name] is int else value if value in ("ahead", "never") and name == "ticks" else float(value)
        except ValueError:
            raise RuleError(f"{name} must be a number, not {value!r}") from None
        if not math.isfinite(found[name] if name != "ticks" or not isinstance(found[name], str) else 0):
            raise RuleError(f"{name} must be a finite number")
    return found
