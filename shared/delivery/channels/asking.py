"""Checks before a channel is stored that its queue exists: otherwise its events could not be delivered.

Only a certain answer counts. A queue that cannot be reached, or that the service may write to but not read about, is no fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from .model import ChannelSpec, QueueChannel
from .ports import Sender

log = logging.getLogger(__name__)

ABSENCE_TIMEOUT: Final = 3.0
"""Seconds after which a queue that does not answer counts as existing."""


@runtime_checkable
class AskingSender(Sender, Protocol):
    """A sender that can ask whether a channel's target is there."""

    async def find_absent(self, spec: ChannelSpec) -> Sequence[tuple[str, str]]:
        """Return the faults of a channel whose target is certainly not there, as (pointer, detail)."""


async def find_absent(senders: Mapping[str, Sender], spec: ChannelSpec) -> Sequence[tuple[str, str]]:
    """Return the faults of a channel whose queue is certainly not there, as (pointer, detail)."""
    if not isinstance(spec, QueueChannel) or not isinstance(sender := senders[spec.type], AskingSender):
        return ()
    try:
        async with asyncio.timeout(ABSENCE_TIMEOUT):
            return await sender.find_absent(spec)
    except TimeoutError:
        log.info("The queue of a channel did not answer within %g s", ABSENCE_TIMEOUT, extra={"action": "channel_unasked"})
        return ()
