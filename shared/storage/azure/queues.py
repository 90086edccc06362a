"""Queues in an Azure storage account, or in its emulator; implements `ports.Queues`.

Requests are built here for the reason given in `transport`, and because the SDK's send costs several times the request.
Source: the Queue service REST reference.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Self
from xml.etree import ElementTree

from ...core.clock import Clock
from ...core.errors import Unavailable
from ...core.settings import Settings
from .. import limits
from ..ports import Message
from . import account, wire
from .transport import HttpAnswer, Transport, TransportPolicy

_XML = {"Content-Type": "application/xml"}
# Either way the message is no longer ours: deleted, or taken by another since.
_LOST = frozenset({"MessageNotFound", "PopReceiptMismatch"})


class AzureQueues:
    """Queues over HTTP. Every call may be repeated: a send whose answer was lost can put its message twice (at least once).

    `transactions` counts requests as the service bills them, retries included (`send`, `receive`, `renew`, `delete`,
    `length`, `ensure`), and `messages_received`.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.transactions: Counter[str] = transport.transactions

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock | None = None, policy: TransportPolicy | None = None) -> Self:
        """With the connection string or the identity the settings name. Raises `UnsafeSettings`."""
        return cls(Transport(account.from_settings("queue", settings), clock, policy))

    @classmethod
    def from_connection_string(cls, text: str, clock: Clock | None = None, policy: TransportPolicy | None = None) -> Self:
        """With an account key or a shared access signature. Raises `UnsafeSettings`."""
        return cls(Transport(account.from_connection_string("queue", text), clock, policy))

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        """Put a message, see `ports.Queues.send`; part seconds round up. Raises `Rejected` or `Unavailable`."""
        limits.check_queue(queue)
        raw = limits.check_message(text, visible_in)
        body = b"<QueueMessage><MessageText>" + base64.b64encode(raw) + b"</MessageText></QueueMessage>"
        query = {"visibilitytimeout": str(limits.whole_seconds(visible_in)), "messagettl": "-1"}
        path = f"/{queue}/messages"
        answer = await self._transport.call("send", "POST", path, query=query, headers=_XML, body=body, repeat=True)
        if answer.status != 201:
            raise _error(answer)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        """Take visible messages, see `ports.Queues.receive`. Raises `Rejected` or `Unavailable`.

        `Message.meta` holds the service's `InsertionTime`, `ExpirationTime` and `TimeNextVisible` as HTTP dates. Text that is
        not base64 of UTF-8, which no send of ours makes, comes as it is.
        """
        limits.check_queue(queue)
        limits.check_receive(limit, lease)
        query = {"numofmessages": str(limit), "visibilitytimeout": str(limits.whole_seconds(lease))}
        answer = await self._transport.call("receive", "GET", f"/{queue}/messages", query=query, repeat=True)
        if answer.status != 200:
            raise _error(answer)
        try:
            messages = [_message(item) for item in ElementTree.fromstring(answer.body).iter("QueueMessage")]
        except (ElementTree.ParseError, KeyError, ValueError):
            # What was taken comes back when its lease ends.
            raise Unavailable("the answer to a receive cannot be read") from None
        self.transactions["messages_received"] += len(messages)
        return messages

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        """Hide a taken message for `lease` seconds from now, see `ports.Queues.renew`; part seconds round up.

        False also when an earlier try was applied and its answer was lost: then the message's receipt is unknown. Raises `Rejected` or
        `Unavailable`.
        """
        limits.check_queue(queue)
        limits.check_visible_in(lease)
        path = f"/{queue}/messages/{wire.percent(message.id)}"
        # Without a body, the message keeps its text.
        query = {"popreceipt": message.receipt, "visibilitytimeout": str(limits.whole_seconds(lease))}
        answer = await self._transport.call("renew", "PUT", path, query=query, repeat=True)
        if answer.status == 204:
            message.receipt = answer.headers.get("x-ms-popreceipt", "")
            return bool(message.receipt)
        if wire.parse_failure(answer.status, answer.body).code in _LOST:
            return False
        raise _error(answer)

    async def delete(self, queue: str, message: Message) -> bool:
        """Remove a taken message; False when it is gone or was taken by another since. Raises `Rejected` or `Unavailable`."""
        limits.check_queue(queue)
        path = f"/{queue}/messages/{wire.percent(message.id)}"
        answer = await self._transport.call("delete", "DELETE", path, query={"popreceipt": message.receipt}, repeat=True)
        if answer.status == 204:
            return True
        if wire.parse_failure(answer.status, answer.body).code in _LOST:
            # After a try whose answer was lost, "not found" is what success looks like.
            return answer.doubtful and answer.status == 404
        raise _error(answer)

    async def length(self, queue: str) -> int:
        """About how many messages there are, hidden ones included. Raises `Rejected` or `Unavailable`."""
        limits.check_queue(queue)
        answer = await self._transport.call("length", "GET", f"/{queue}", query={"comp": "metadata"}, repeat=True)
        if answer.status != 200:
            raise _error(answer)
        try:
            return int(answer.headers["x-ms-approximate-messages-count"])
        except (KeyError, ValueError):
            raise Unavailable("the answer to a length cannot be read") from None

    async def ensure(self, queues: Sequence[str]) -> None:
        """Create the queues that are missing. Raises `Rejected` or `Unavailable`."""
        for queue in queues:
            limits.check_queue(queue)
        for queue in queues:
            answer = await self._transport.call("ensure", "PUT", f"/{queue}", repeat=True)
            if answer.status not in (201, 204):
                failure = wire.parse_failure(answer.status, answer.body)
                if failure.code != "QueueAlreadyExists":
                    raise wire.error_of(failure, write=False)

    async def close(self) -> None:
        """Release connections."""
        await self._transport.close()


def _error(answer: HttpAnswer) -> Exception:
    if answer.status < 400:
        return Unavailable(f"the queue's answer has status {answer.status}")
    return wire.error_of(wire.parse_failure(answer.status, answer.body), write=False)


def _message(item: ElementTree.Element) -> Message:
    fields = {child.tag: child.text or "" for child in item}
    text = fields["MessageText"]
    with contextlib.suppress(binascii.Error, UnicodeDecodeError):
        text = base64.b64decode(text, validate=True).decode()
    meta = {name: fields.get(name, "") for name in ("InsertionTime", "ExpirationTime", "TimeNextVisible")}
    inserted = wire.parse_date(fields["InsertionTime"])
    return Message(fields["MessageId"], fields["PopReceipt"], text, int(fields["DequeueCount"]), inserted, meta)
