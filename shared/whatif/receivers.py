"""The receivers of a twin's deliveries, and the record of each event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..core.clock import Millis
from ..delivery.channels.ports import OutgoingDelivery, Target, Verdict
from .changes import Change, ReceiverChange
from .snapshot import ExportedChannel
from .twin.cpu import VirtualProcessor
from .twin.loop import LoopClock

DEFAULT_TOOK: Final = (20, 50, 80)
"""Milliseconds of the answers of a receiver of which no attempt is known."""
REFUSED_STATUS: Final = 503


@dataclass(slots=True)
class DeliveryRecord:
    """The course of an event. Times in milliseconds since 1970. arrived, ended: of its latest attempt. failed: its failed attempts."""

    due: Millis
    channel: str
    arrived: Millis | None = None
    ended: Millis | None = None
    delivered: bool = False
    failed: int = 0
    repeated: int = 0
    """Deliveries beyond the first."""


class TwinReceivers:
    """Answers the deliveries of all instances as the channel's receiver did before the export, with the changes."""

    def __init__(self, channels: Iterable[ExportedChannel], changes: Iterable[Change], clock: LoopClock, seed: int) -> None:
        self._channels = {channel.name: channel for channel in channels}
        self._changes = [each for each in changes if isinstance(each, ReceiverChange)]
        self._clock, self._seed = clock, seed
        self.records: dict[str, DeliveryRecord] = {}

    def expect(self, event_id: str, due: Millis, channel: str) -> None:
        """Note an event that is stored."""
        self.records[event_id] = DeliveryRecord(due, channel)

    async def take(self, target: Target, delivery: OutgoingDelivery, timeout: float) -> Verdict:
        """Answer an attempt. timeout: seconds after which the sender gives up."""
        record = self.records.get(delivery.id)
        if record is None:
            # An occurrence of a schedule.
            record = self.records[delivery.id] = DeliveryRecord(delivery.due, target.name)
        if not record.delivered:
            record.arrived, record.ended = self._clock.now(), None
        # Seeded by the event, so that a change does not alter the chance of another event.
        chance = random.Random(f"{self._seed}/{delivery.id}/{delivery.attempt}")
        seconds, fails = self._answer(target.name, self._clock.now(), chance)
        await asyncio.sleep(min(seconds, timeout))
        if record.delivered:
            record.repeated += 1
            return Verdict("delivered", 200)
        record.ended = self._clock.now()
        if seconds > timeout:
            record.failed += 1
            return Verdict("retry", None, f"no answer within {timeout:g} s")
        if fails:
            record.failed += 1
            return Verdict("retry", REFUSED_STATUS)
        record.delivered = True
        return Verdict("delivered", 200)

    def _answer(self, name: str, now: Millis, chance: random.Random) -> tuple[float, bool]:
        channel = self._channels.get(name)
        took = (channel.took if channel is not None else ()) or DEFAULT_TOOK
        # A value between two neighbours of the sample, because a small sample would give few distinct values.
        place = chance.random() * (len(took) - 1)
        low = int(place)
        millis = took[low] + (took[min(low + 1, len(took) - 1)] - took[low]) * (place - low)
        failing = channel.failed if channel is not None else 0.0
        for change in self._changes:
            if change.channel == name and change.first <= now and (change.end is None or now < change.end):
                millis += change.slower
                failing = max(failing, change.failing)
        return millis / 1000, chance.random() < failing


class TwinSender:
    """The `Sender` of one instance."""

    def __init__(self, receivers: TwinReceivers, processor: VirtualProcessor, seconds: float, timeouts: Mapping[str, float]) -> None:
        """seconds: of CPU that a delivery costs the instance. timeouts: seconds, by channel."""
        self._receivers, self._processor, self._seconds, self._timeouts = receivers, processor, seconds, timeouts

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """See `Sender.send`."""
        await self._processor.use(self._seconds)
        return await self._receivers.take(target, delivery, self._timeouts.get(target.name, 15.0))

    async def close(self) -> None:
        """Do nothing."""
