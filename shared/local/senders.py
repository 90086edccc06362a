"""Senders that report each attempt."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..delivery.channels.ports import OutgoingDelivery, Sender, Target, Verdict

type OnAttempt = Callable[[Target, OutgoingDelivery, Verdict], object]
"""Called with each attempt that has ended."""


class WatchedSenders(dict[str, Sender]):
    """Senders by channel type. Each is made at its first use, like the senders of `open_senders`."""

    def __init__(self, senders: Mapping[str, Sender], on_attempt: OnAttempt) -> None:
        super().__init__()
        self._senders, self._on_attempt = senders, on_attempt
        # An empty mapping would count as none.
        _ = self["http"]

    def __missing__(self, channel_type: str) -> Sender:
        made = self[channel_type] = _WatchedSender(self._senders[channel_type], self._on_attempt)
        return made


class _WatchedSender:
    def __init__(self, sender: Sender, on_attempt: OnAttempt) -> None:
        self._sender, self._on_attempt = sender, on_attempt

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        verdict = await self._sender.send(target, delivery)
        self._on_attempt(target, delivery, verdict)
        return verdict

    async def close(self) -> None:
        await self._sender.close()
