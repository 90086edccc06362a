"""The profile of one history, drawn from its seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

type Effect = Literal["read", "write", "send", "deliver"]

FAULTS: dict[Effect, dict[str, int]] = {
    "read": {"unavailable": 5, "slow": 3, "crash": 2, "pause": 2},
    "write": {
        "unavailable": 4,
        "lost-never": 3,
        "lost-applied": 5,
        "lost-delayed": 5,
        "crash": 3,
        "crash-applied": 4,
        "crash-delayed": 2,
        "slow": 4,
        "pause": 3,
    },
    "deliver": {"crash": 2, "crash-applied": 5, "pause": 2},
    "send": {"unavailable": 3, "lost-never": 3, "lost-applied": 2, "lost-delayed": 2, "doubled": 4, "crash": 3, "crash-applied": 2},
}
"""Faults of an effect, with their weights.

unavailable     503 or 429: not applied, and said so            lost-never      the answer is lost, the request too
lost-applied    applied, the answer is lost                     lost-delayed    the answer is lost, the request arrives later
crash           the instance dies before the effect             crash-applied   and after it
crash-delayed   it dies, and the request arrives later          doubled         the message is there twice
                (a delivery: before or after the receiver took it)
slow            request or answer travels long                  pause           the whole instance stands still
"""

STYLES = {"none": 6, "single": 30, "light": 24, "mixed": 22, "crashes": 8, "lost": 6, "frozen": 8, "rough": 4}


@dataclass(slots=True)
class Profile:
    """One history's parameters. Times in seconds."""

    style: str
    rate: float = 0.0
    """Chance of a fault per effect."""
    only: tuple[str, ...] = ()
    """If not empty: these faults only."""
    at: frozenset[int] = frozenset()
    """Numbers of the effects at which a fault happens for certain."""
    crashes: int = 0
    """Most crashes."""
    instances: int = 2
    tenants: int = 1
    latency: float = 0.0
    skew: int = 0
    """Most milliseconds a wall clock is off."""
    drift: float = 0.0
    """Most a monotonic clock is off, as a share."""
    timer_silent: float = 0.0
    """Chance per tick that the timer goes silent, for up to two minutes."""
    timer_doubled: float = 0.0
    message_trouble: float = 0.0
    """Chance per message that it is delayed, doubled, or hidden by a lost receive."""
    deploys: float = 0.0
    """Chance that an instance is restarted in order."""
    impatient: float = 0.0
    """Chance that a client stops waiting before the answer."""
    window: float = 30.0
    """Seconds in which clients make requests."""
    trouble: float = 60.0
    """Seconds for which faults go on after that."""
    events: int = 5
    horizon: float = 60.0
    """The largest time from a request to the due time."""
    shard_events: int = 990
    slots: int = 64
    """Deliveries at once, per process and target."""
    page_rows: int | None = None
    group: int = 99
    """Events in one transaction."""
    busy: float = 1.0
    """The number of client actions on each event."""
    events_per_second: float | None = None
    open_events: int | None = None
    """Limits of each tenant."""
    retention: bool = False
    """True when the end of retention is simulated as well."""
    weights: dict[Effect, tuple[list[str], list[int]]] = field(default_factory=dict)


def draw(random: Random, style: str | None = None) -> Profile:
    """A history's profile; `style` fixes its kind of trouble."""
    style = style or random.choices(list(STYLES), list(STYLES.values()))[0]
    profile = Profile(style)
    profile.instances = random.choice((2, 2, 3))
    profile.tenants = 2 if random.random() < 0.2 else 1
    profile.latency = random.choice((0.0, 0.002, 0.01, 0.01, 0.05, 0.3))
    profile.window = random.choice((1.0, 10.0, 20.0, 40.0, 70.0))
    profile.horizon = random.choice((2.0, 15.0, 40.0, 70.0, 200.0, 400.0))
    profile.events = random.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 10)) if random.random() < 0.95 else random.randint(15, 60)
    profile.shard_events = random.choice((2, 5, 990, 990))
    profile.slots = random.choice((1, 2, 64, 64))
    profile.page_rows = random.choice((None, None, None, 2, 3))
    profile.group = random.choice((99, 99, 2, 3))
    profile.busy = random.choice((0.5, 1.0, 1.0, 2.0))
    profile.retention = random.random() < 0.1
    if random.random() < 0.1:
        profile.events_per_second, profile.open_events = random.choice((1.0, 5.0)), random.choice((None, 3))
    if style == "none":
        profile.trouble = 0.0
        return profile
    profile.trouble = random.choice((30.0, 60.0, 100.0))
    profile.skew = random.choice((0, 100, 2000))
    profile.drift = random.choice((0.0, 0.01))
    profile.impatient = random.choice((0.0, 0.05))
    profile.timer_silent = random.choice((0.0, 0.0, 0.1))
    profile.timer_doubled = random.choice((0.0, 0.1))
    profile.message_trouble = random.choice((0.0, 0.05, 0.2))
    profile.deploys = random.choice((0.0, 0.0, 0.3))
    profile.crashes = 8
    match style:
        case "single":
            profile.at = frozenset(random.randrange(5, 40 + 40 * profile.events) for _ in range(random.choice((1, 1, 2, 3))))
        case "light":
            profile.rate = 0.01
        case "mixed":
            profile.rate = 0.03
        case "crashes":
            profile.rate, profile.crashes = 0.02, 12
            profile.only = ("crash", "crash-applied", "crash-delayed", "pause")
        case "lost":
            profile.rate = 0.1
            profile.only = ("lost-never", "lost-applied", "lost-delayed", "doubled")
        case "frozen":
            profile.rate, profile.only, profile.timer_silent = 0.04, ("pause", "slow"), 0.0
        case "rough":
            profile.rate = 0.08
    for effect, faults in FAULTS.items():
        chosen = {name: weight for name, weight in faults.items() if not profile.only or name in profile.only}
        if chosen:
            profile.weights[effect] = (list(chosen), list(chosen.values()))
    return profile
