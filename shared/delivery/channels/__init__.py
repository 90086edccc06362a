"""Channels: the ways to deliver due events, and the verdict on each attempt.

`open_senders` makes one `Sender` per channel type. `signing.verify` is for receivers, `fake.FakeReceiver` for tests.

To add a channel type: its settings and its form in answers in `model`, its checks and secrets in `validation`, its sender in
`open_senders`, or in a part of the service (`app/parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from ...core.signing import verify
from .ports import OutgoingDelivery, Sender, Target, Verdict

if TYPE_CHECKING:
    from ...core.clock import Clock
    from ...core.settings import Settings
    from ...storage.ports import Queues
    from .http import HttpSender
    from .queue import AccountQueues

__all__ = ["OutgoingDelivery", "Sender", "Target", "Verdict", "close_senders", "open_senders", "verify"]


def open_senders(
    settings: Settings,
    queues: Queues,
    clock: Clock,
    more: Mapping[str, Callable[[Settings], Sender]],
    *,
    accounts: AccountQueues | None = None,
) -> dict[str, Sender]:
    """Return a sender for each channel type by name, by `[type]`. Connections are made when first needed, in the loop that needs them.

    `more` makes the senders of parts of the service. `accounts` opens the queues of other storage accounts, by default with the app's
    identity. UnsafeSettings if an entry of the egress allow-list is neither a host nor a network.
    """

    started = clock.monotonic()

    def uptime() -> int:
        return round((clock.monotonic() - started) * 1000)

    def http() -> Sender:
        from .http import HttpSender

        return HttpSender(settings, clock)

    def fleet() -> Sender:
        from .fleet import FleetSender

        return FleetSender(cast("HttpSender", senders["http"]))

    def queue() -> Sender:
        from .queue import QueueSender, identity_accounts

        return QueueSender(queues, accounts or identity_accounts(settings, clock), settings.own_accounts, uptime)

    def eventgrid() -> Sender:
        from .eventgrid import EventGridSender

        return EventGridSender(settings, clock)

    def servicebus() -> Sender:
        from .servicebus import ServiceBusSender

        return ServiceBusSender(settings, clock)

    senders = _Senders(http=http, fleet=fleet, queue=queue, eventgrid=eventgrid, servicebus=servicebus)
    senders.makers |= {name: partial(make, settings) for name, make in more.items()}
    # It checks the egress allow-list.
    _ = senders["http"]
    return senders


class _Senders(dict[str, Sender]):
    """The senders that have been used, by channel type. Another one is imported and made by `[type]`."""

    def __init__(self, **makers: Callable[[], Sender]) -> None:
        super().__init__()
        self.makers: dict[str, Callable[[], Sender]] = makers

    def __missing__(self, channel_type: str) -> Sender:
        made = self[channel_type] = self.makers[channel_type]()
        return made


async def close_senders(senders: Mapping[str, Sender] | Iterable[Sender]) -> None:
    """Close each sender once. A failure does not keep the others open; the first error is raised at the end."""
    errors: list[Exception] = []
    # A list: a delivery that just ends may make another sender meanwhile.
    for sender in list(senders.values() if isinstance(senders, Mapping) else senders):
        try:
            await sender.close()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
