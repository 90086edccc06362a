"""The ledger: one row per finished shard, with final counts, and lateness and dead events per channel."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from ...core.clock import Millis
from ...engine.row_codec import Format, RowCodec
from ...storage.ports import Props, Row
from ..timings import KEEP_DEAD, KEEP_FINISHED
from .gate import Counts

BOUNDS: tuple[Millis, ...] = tuple(base * 10**power for power in range(8) for base in (1, 2, 5))
"""Upper bounds of the lateness buckets in milliseconds: 1, 2, 5, 10 ... 50,000,000. One more bucket contains what is later."""
DAY: Millis = 86_400_000

MOST_CHANNELS = 60
"""Channels with figures of their own in one row: 60 full histograms fit a string property."""
REST = "*"
"""Name of the figures of all other channels together."""

type Histogram = dict[int, int]
"""Bucket number -> deliveries."""


def bucket_of(late: Millis) -> int:
    """Return the number of the bucket for a lateness: the first whose bound is not below it."""
    return bisect_left(BOUNDS, late)


def quantile(histogram: Mapping[int, int], share: float) -> Millis | None:
    """Return the upper bound of the bucket in which the quantile lies, or None for an empty histogram."""
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


@dataclass(slots=True)
class DeliveryFigures:
    """The results of one channel's events. Lateness in milliseconds, of delivered events."""

    histogram: Histogram = field(default_factory=dict)
    longest: Millis = 0
    total: Millis = 0
    """Sum of the lateness of all deliveries."""
    dead: int = 0

    @property
    def delivered(self) -> int:
        """Events delivered."""
        return sum(self.histogram.values())

    def late(self, late: Millis) -> None:
        """Count one delivery."""
        number = bucket_of(late)
        self.histogram[number] = self.histogram.get(number, 0) + 1
        self.longest = max(self.longest, late)
        self.total += late

    def add(self, other: DeliveryFigures) -> None:
        """Add the figures of another channel or shard."""
        add(self.histogram, other.histogram)
        self.longest = max(self.longest, other.longest)
        self.total += other.total
        self.dead += other.dead


def figures_per_channel(rows: Iterable[Row]) -> dict[str, DeliveryFigures]:
    """Return the figures of the delivered and dead rows, per channel."""
    channels: dict[str, DeliveryFigures] = {}
    for row in rows:
        state = row.props["state"]
        if state == "delivered":
            channels.setdefault(str(row.props["channel"]), DeliveryFigures()).late(int(row.props.get("late", 0)))
        elif state == "dead":
            channels.setdefault(str(row.props["channel"]), DeliveryFigures()).dead += 1
    return channels


def entry_for(rows: Iterable[Row], now: Millis) -> Props:
    """Return the ledger row's content except for the counts. `keep`: time from which retention may remove the shard."""
    channels = figures_per_channel(rows)
    dead = any(channel.dead for channel in channels.values())
    return _ENTRY.encode(LedgerEntry(now, now + (KEEP_DEAD if dead else KEEP_FINISHED), keep_most_used(channels)))


def keep_most_used(channels: Mapping[str, DeliveryFigures]) -> dict[str, DeliveryFigures]:
    """Keep the `MOST_CHANNELS` most used channels and sum the others as `*`."""
    kept: dict[str, DeliveryFigures] = {}
    for channel in sorted(channels, key=lambda channel: -channels[channel].delivered):
        add_channel(kept, channel, channels[channel])
    return kept


def add_channel(into: dict[str, DeliveryFigures], channel: str, found: DeliveryFigures) -> None:
    """Add a channel's figures, under its own name if it is there or if there is room for one more."""
    named = channel in into or len(into) - (REST in into) < MOST_CHANNELS
    into.setdefault(channel if named else REST, DeliveryFigures()).add(found)


def pack(channels: Mapping[str, DeliveryFigures]) -> str:
    """Encode the figures of at most `MOST_CHANNELS` channels and the rest as one string property."""
    return orjson.dumps({name: [each.longest, each.total, each.dead, *_flat(each.histogram)] for name, each in channels.items()}).decode()


def _flat(histogram: Histogram) -> list[int]:
    return [part for pair in sorted(histogram.items()) for part in pair]


def unpack(text: str) -> dict[str, DeliveryFigures]:
    """Parse what `pack` encoded."""
    return {
        channel: DeliveryFigures(dict(zip(flat[::2], flat[1::2], strict=True)), longest, total, dead)
        for channel, (longest, total, dead, *flat) in orjson.loads(text).items()
    }


class LedgerEntry(NamedTuple):
    """A ledger row without the counts. ended: when the shard was finished. keep: time from which retention may remove the shard."""

    ended: Millis
    keep: Millis
    channels: dict[str, DeliveryFigures]


class ShardFigures(NamedTuple):
    """The figures of a ledger row, or the sum of several."""

    counts: Counts
    channels: dict[str, DeliveryFigures]


CHANNELS: Final = Format(pack, lambda text: unpack(str(text)))
_ENTRY: Final = RowCodec(LedgerEntry, formats={"channels": CHANNELS}, names={"channels": "late"})
_FIGURES: Final = RowCodec(ShardFigures, formats={"counts": RowCodec(Counts), "channels": CHANNELS}, names={"channels": "late"})


def figures_of(props: Props) -> ShardFigures:
    """Return the figures of a ledger row or of a row of totals. Raises KeyError, TypeError, ValueError for a row that cannot be read."""
    return _FIGURES.decode(props)
