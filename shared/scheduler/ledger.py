"""The ledger: one row per finished shard, with final counts and a lateness histogram per channel."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ..clock import Millis
from ..storage.ports import Props, Row

BOUNDS: tuple[Millis, ...] = tuple(base * 10**power for power in range(8) for base in (1, 2, 5))
"""Upper bounds of the lateness buckets, in milliseconds: 1, 2, 5, 10 ... 50,000,000; one more bucket holds what is later."""
DAY: Millis = 86_400_000
KEEP: Millis = 7 * DAY
"""How long a finished event can be looked up, and its id stays taken."""
KEEP_DEAD: Millis = 30 * DAY

MOST_CHANNELS = 60
"""Channels told apart in one ledger row: 60 full histograms fit a string property."""

type Histogram = dict[int, int]
"""Bucket number -> deliveries."""


def bucket_of(late: Millis) -> int:
    """The number of the bucket that holds a lateness: the first whose bound is not below it."""
    return bisect_left(BOUNDS, late)


def quantile(histogram: Mapping[int, int], share: float) -> Millis | None:
    """The upper bound of the bucket in which the quantile lies, or None for an empty histogram."""
    total = sum(histogram.values())
    if not total:
        return None
    seen = 0
    for number in sorted(histogram):
        seen += histogram[number]
        if seen >= share * total:
            return BOUNDS[min(number, len(BOUNDS) - 1)]
    return BOUNDS[-1]


def add(into: Histogram, other: Mapping[int, int]) -> None:
    """Add one histogram to another."""
    for number, count in other.items():
        into[number] = into.get(number, 0) + count


def lateness(rows: Iterable[Row]) -> tuple[dict[str, Histogram], dict[str, Millis]]:
    """Histogram and greatest lateness of the delivered rows, per channel."""
    channels: dict[str, Histogram] = {}
    longest: dict[str, Millis] = {}
    for row in rows:
        if row.props["state"] == "delivered":
            channel, late = str(row.props["channel"]), int(row.props.get("late", 0))
            histogram = channels.setdefault(channel, {})
            number = bucket_of(late)
            histogram[number] = histogram.get(number, 0) + 1
            longest[channel] = max(longest.get(channel, 0), late)
    return channels, longest


def entry_for(rows: Iterable[Row], now: Millis) -> Props:
    """The ledger row's content besides the counts. `keep`: retention may remove the shard from then on."""
    rows = list(rows)
    channels, longest = lateness(rows)
    dead = any(row.props["state"] == "dead" for row in rows)
    return {"ended": now, "keep": now + (KEEP_DEAD if dead else KEEP), "late": pack(channels, longest)}


def pack(channels: Mapping[str, Histogram], longest: Mapping[str, Millis]) -> str:
    """Histograms as one string property. Beyond `MOST_CHANNELS` the least used are told together as `*`."""
    kept = sorted(channels, key=lambda channel: -sum(channels[channel].values()))
    packed: dict[str, list[int]] = {}
    rest: Histogram = {}
    most = 0
    for number, channel in enumerate(kept):
        if number < MOST_CHANNELS:
            packed[channel] = [longest[channel], *_flat(channels[channel])]
        else:
            add(rest, channels[channel])
            most = max(most, longest[channel])
    if rest:
        packed["*"] = [most, *_flat(rest)]
    return orjson.dumps(packed).decode()


def _flat(histogram: Histogram) -> list[int]:
    return [part for pair in sorted(histogram.items()) for part in pair]


def late_of(props: Mapping[str, Any]) -> tuple[dict[str, Histogram], dict[str, Millis]]:
    """The inverse, for a ledger row."""
    channels: dict[str, Histogram] = {}
    longest: dict[str, Millis] = {}
    for channel, (most, *flat) in orjson.loads(str(props["late"])).items():
        channels[channel] = dict(zip(flat[::2], flat[1::2], strict=True))
        longest[channel] = most
    return channels, longest
