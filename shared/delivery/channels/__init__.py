"""Channels: the ways to deliver due events, and the verdict on each attempt.

`open_senders` makes one `Sender` per channel type. `signing.verify` is for receivers, `fake.FakeReceiver` for tests.

To add a channel type: its settings in `model`, its stored form in `outputs`, its checks and secrets in `validation`, its sender in
`open_senders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...core.signing import verify
from .ports import OutgoingDelivery, Sender, Target, Verdict

if TYPE_CHECKING:
    from ...core.clock import Clock
    from ...core.settings import Settings
    from ...storage.ports import Queues
    from .queue import AccountQueues

__all__ = ["OutgoingDelivery", "Sender", "Target", "Verdict", "close_senders", "open_senders", "verify"]


def open_senders(settings: Settings, queues: Queues, clock: Clock, *, accounts: AccountQueues | None = None) -> dict[str, Sender]:
    """Return a sender for each channel type by name. Connections are made when first needed, in the loop that needs them.

    `accounts` opens the queues of other storage accounts, by default with the app's identity. UnsafeSettings if an entry of the egress
    allow-list is neither a host nor a network.
    """
    # Imported here, so that receivers, which need only `verify`, do not load the senders.
    from .eventgrid import EventGridSender
    from .fleet import FleetSender
    from .http import HttpSender
    from .kafka import KafkaSender
    from .queue import QueueSender, identity_accounts
    from .servicebus import ServiceBusSender

    http = HttpSender(settings, clock)
    return {
        "http": http,
        "fleet": FleetSender(http),
        "queue": QueueSender(queues, accounts or identity_accounts(settings, clock), settings.own_accounts),
        "eventgrid": EventGridSender(settings, clock),
        "kafka": KafkaSender(settings),
        "servicebus": ServiceBusSender(settings, clock),
    }


async def close_senders(senders: Mapping[str, Sender] | Iterable[Sender]) -> None:
    """Close each sender once. A failure does not keep the others open; the first error is raised at the end."""
    errors: list[Exception] = []
    for sender in senders.values() if isinstance(senders, Mapping) else senders:
        try:
            await sender.close()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
