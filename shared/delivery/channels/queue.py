"""The queue channel: one structured CloudEvent per message of an Azure Storage queue."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence

from ...core.clock import Clock, Millis
from ...core.errors import OutcomeUnknown, Rejected, StorageError
from ...core.settings import Settings
from ...core.version import version
from ...storage.ports import MAX_MESSAGE_BYTES, Queues
from . import cloudevents
from .model import ChannelSpec, QueueChannel, is_service_queue
from .ports import OutgoingDelivery, Target, Verdict

log = logging.getLogger(__name__)

type AccountQueues = Callable[[str], Queues]
"""Opens the queues of another storage account, `https://{account}.queue.core.windows.net`, with the app's identity."""

_CODE = re.compile(r"\w{1,60}", re.ASCII)


def identity_accounts(settings: Settings, clock: Clock) -> AccountQueues:
    """Return a function that opens other accounts' queues with the app's identity, whatever opens the app's own storage."""

    def open_account(account: str) -> Queues:
        from ...storage.azure.queues import AzureQueues

        # The channel's model checks the account's name; tokens for it go to Azure's own domain only.
        there = settings.model_copy(update={"storage": None, "queue_uri": f"https://{account}.queue.core.windows.net"})
        return AzureQueues.from_settings(there, clock)

    return open_account


def _code_of(error: Rejected) -> str | None:
    found = _CODE.match(str(error))
    return found[0] if found else None


class QueueSender:
    """Sends queue deliveries: into the app's own account, or into the one that the channel names.

    Clients of other accounts are opened once and kept. `close` closes those, not the app's own `queues`. own_accounts: the names of the
    service's storage accounts, whose own queues no channel may write; None if they are not known. uptime: returns the milliseconds for
    which this process has run the app. Each message names it, and the version of the app.
    """

    def __init__(
        self,
        queues: Queues,
        accounts: AccountQueues | None = None,
        own_accounts: frozenset[str] | None = frozenset(),
        uptime: Callable[[], Millis] = lambda: 0,
    ) -> None:
        self._own, self._accounts, self._own_accounts, self._uptime = queues, accounts, own_accounts, uptime
        self._others: dict[str, Queues] = {}

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Put one message. A missing queue or a refusal is tried again, because the queue or the role may still be created."""
        spec = target.spec
        if not isinstance(spec, QueueChannel):
            raise TypeError(f"not a queue channel: {spec.type}")
        message = cloudevents.structured(target, delivery, {"tocsinuptimems": self._uptime(), "tocsinversion": version()})
        if len(message) > MAX_MESSAGE_BYTES:
            return Verdict("final", None, f"the event is {len(message)} bytes as a CloudEvent; a queue message holds {MAX_MESSAGE_BYTES}")
        where = f"queue {spec.queue}" if spec.account is None else f"queue {spec.queue} of account {spec.account}"
        if is_service_queue(spec, self._own_accounts):
            # The service got this account after the channel was accepted.
            return Verdict("final", None, f"{where} belongs to the service; change the channel's queue, then redrive the event")
        queues = self._queues(spec.account)
        if queues is None:
            return Verdict("final", None, f"{where}: this service has no identity for queues of other accounts")
        try:
            await queues.send(spec.queue, message.decode())
        except Rejected as error:
            # Only the service's code is used: the rest of the text may quote names or addresses.
            code = _code_of(error) or "no reason given"
            why = "does not exist" if code == "QueueNotFound" else f"refuses the message ({code})"
            return Verdict("retry", None, f"{where} {why}")
        except OutcomeUnknown:
            return Verdict("retry", None, f"{where}: the answer was lost; the message may have been stored")
        except StorageError:
            return Verdict("retry", None, f"{where} cannot be reached")
        return Verdict("delivered")

    async def find_absent(self, spec: ChannelSpec) -> Sequence[tuple[str, str]]:
        """Return the faults of a channel whose queue is certainly not there, as (pointer, detail)."""
        if not isinstance(spec, QueueChannel):
            raise TypeError(f"not a queue channel: {spec.type}")
        queues = self._queues(spec.account)
        if queues is None:
            return [("/account", "must be left out: this service has no identity for queues of other accounts")]
        try:
            await queues.length(spec.queue)
        except Rejected as error:
            # The role that sends to a queue need not allow to look at it.
            if _code_of(error) == "QueueNotFound":
                there = f"account {spec.account}" if spec.account is not None else "the service's own account"
                return [("/queue", f"names a queue that does not exist in {there}; create it first")]
        except StorageError as error:
            log.info("A queue could not be asked for (%s)", type(error).__name__, extra={"action": "channel_unasked"})
        return ()

    def _queues(self, account: str | None) -> Queues | None:
        if account is None:
            return self._own
        if account not in self._others and self._accounts is not None:
            self._others[account] = self._accounts(account)
        return self._others.get(account)

    async def close(self) -> None:
        """Close the clients of other accounts."""
        others, self._others = list(self._others.values()), {}
        for queues in others:
            await queues.close()
