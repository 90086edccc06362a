"""The loads: posts of events, by time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

DAY: Final = 86_400.0
FIRST: Final = 1_000.0
"""Seconds after which the first event is due."""

type Post = tuple[int, int, list[int]]
"""Time of a POST in milliseconds, a number of the tenant, and the due times of its events."""
type Ahead = tuple[float, float]
"""Events are stored this many seconds before they are due, from and to; evenly spread."""

FAR: Final[Ahead] = (120.0, 900.0)
NEAR: Final[Ahead] = (25.0, 120.0)


@dataclass(frozen=True, slots=True)
class Load:
    """A load. seconds: length of a run. usd: target of a month's bill with planned wakes. timely: its lateness has targets."""

    title: str
    make: Callable[[Random, float, Ahead], list[Post]]
    seconds: float
    usd: float | None = None
    timely: bool = False


def _post(due: float, random: Random, ahead: Ahead, tenant: int = 0) -> Post:
    return max(0, round(1000 * (due - random.uniform(*ahead)))), tenant, [round(1000 * due)]


def nothing(random: Random, seconds: float, ahead: Ahead) -> list[Post]:
    """Post nothing."""
    return []


def every(pause: float, jitter: float) -> Callable[[Random, float, Ahead], list[Post]]:
    """Return a load of single events that are due each `pause` seconds, up to `jitter` seconds earlier or later."""

    def make(random: Random, seconds: float, ahead: Ahead) -> list[Post]:
        first = FIRST + random.uniform(0, pause)
        times = (first + number * pause for number in range(max(0, int((seconds - first - jitter) / pause))))
        return [_post(time + random.uniform(-jitter, jitter), random, ahead) for time in times]

    return make


def tenants(count: int, pause: float) -> Callable[[Random, float, Ahead], list[Post]]:
    """Return a load of `count` tenants, each with an event each `pause` seconds."""

    def make(random: Random, seconds: float, ahead: Ahead) -> list[Post]:
        one = every(pause, 2.0)
        return sorted((at, tenant, dues) for tenant in range(count) for at, _, dues in one(random, seconds, ahead))

    return make


def herd(events: int) -> Callable[[Random, float, Ahead], list[Post]]:
    """Return a load of events that are due at one instant, posted together an hour before; nothing else happens."""

    def make(random: Random, seconds: float, ahead: Ahead) -> list[Post]:
        due = seconds - 300.0 + random.uniform(0, 60)
        return [(round(1000 * (due - 3600)), 0, [round(1000 * due)] * events)]

    return make


def bulk(per_minute: int) -> Callable[[Random, float, Ahead], list[Post]]:
    """Return a load of batches of a thousand events, which fill shards of minutes to come, for five minutes."""

    def make(random: Random, seconds: float, ahead: Ahead) -> list[Post]:
        first, posts = seconds - 300.0, []
        for number in range(5 * per_minute // 990):
            due = round(1000 * (first + number * 60 * 990 / per_minute))
            posts.append((round(1000 * (first - 900 + number * 0.02)), number, [due] * 990))
        return posts

    return make


LOADS: Final[dict[str, Load]] = {
    "idle": Load("idle", nothing, 2 * DAY, 1.5),
    "hour": Load("1 event an hour", every(3600, 600), 8 * DAY, 1.5, timely=True),
    "ten": Load("1 event each 10 minutes", every(600, 60), 2 * DAY, 1.6, timely=True),
    "minute": Load("1 event a minute", every(60, 5), 0.75 * DAY, 3.0, timely=True),
    "four": Load("4 events a minute", every(15, 3), 0.25 * DAY, 8.2, timely=True),
    "sixty": Load("60 events a minute", every(1, 0.4), 0.06 * DAY),
    "tenants": Load("300 tenants with 1 event a minute", tenants(300, 60), 0.06 * DAY, 75.0),
    "herd": Load("5,000 events at one instant after an idle hour", herd(5_000), 3 * 3600.0),
    "bulk": Load("a million events a minute, stored a quarter of an hour ahead", bulk(1_000_000), 1_800.0),
}
