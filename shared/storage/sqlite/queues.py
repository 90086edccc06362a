"""Queues in the database of a folder."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ...core.clock import Clock
from ...core.errors import Rejected
from .. import limits
from ..ports import Message
from ..twins import taken_message
from .database import Database

_KIND: Final = "queue"


class FolderQueues:
    """Queues in a folder; implements `ports.Queues`. The leases of a process end with it, so the next process gets its messages at once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self.transactions: Counter[str] = Counter()

    def _number(self, queue: str) -> int:
        found = self._database.names.get((_KIND, queue))
        if found is None:
            limits.check_queue(queue)
            raise Rejected(f"QueueNotFound: {queue}")
        return found

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        """Put a message, see `ports.Queues.send`. Raises `Rejected` when it is over 48 KiB or the delay over 7 days."""
        raw, number = limits.check_message(text, visible_in), self._number(queue)

        def change(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            # The service has whole seconds. Rounding up keeps a message from becoming visible too early.
            visible = now + limits.whole_seconds(visible_in) * 1000
            sql = "INSERT INTO messages (queue, text, inserted, visible, turn) VALUES (?, ?, ?, ?, ?)"
            connection.execute(sql, (number, raw, now, visible, self._database.next_version()))

        self.transactions["send"] += 1
        await self._database.change(change)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        """Take visible messages, see `ports.Queues.receive`. Raises `Rejected`."""
        limits.check_receive(limit, lease)
        number = self._number(queue)

        def change(connection: sqlite3.Connection) -> list[Message]:
            now = self._clock.now()
            until = now + limits.whole_seconds(lease) * 1000
            sql = "SELECT id, text, inserted, taken FROM messages WHERE queue = ? AND visible <= ? ORDER BY visible, turn LIMIT ?"
            taken: list[Message] = []
            for id, text, inserted, count in connection.execute(sql, (number, now, limit)).fetchall():
                receipt = self._database.next_version()
                set_to = "UPDATE messages SET visible = ?, turn = ?, receipt = ?, taken = taken + 1 WHERE id = ?"
                connection.execute(set_to, (until, receipt, receipt, id))
                taken.append(taken_message(f"m{id}", f"r{receipt}", text.decode(), count + 1, inserted, until))
            return taken

        self.transactions["receive"] += 1
        found = await self._database.change(change)
        self.transactions["messages_received"] += len(found)
        return found

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        """Hide a taken message again and set its receipt; False when it is gone or was taken by another since. Raises `Rejected`."""
        limits.check_visible_in(lease)
        number, held = self._number(queue), _held(message)

        def change(connection: sqlite3.Connection) -> str | None:
            receipt = self._database.next_version()
            visible = self._clock.now() + limits.whole_seconds(lease) * 1000
            sql = "UPDATE messages SET visible = ?, turn = ?, receipt = ? WHERE id = ? AND receipt = ? AND queue = ?"
            done = connection.execute(sql, (visible, receipt, receipt, *held, number))
            return f"r{receipt}" if done.rowcount == 1 else None

        self.transactions["renew"] += 1
        found = await self._database.change(change)
        if found is not None:
            message.receipt = found
        return found is not None

    async def delete(self, queue: str, message: Message) -> bool:
        """Remove a taken message; False when it is gone or was taken by another since. Raises `Rejected`."""
        number, held = self._number(queue), _held(message)

        def change(connection: sqlite3.Connection) -> bool:
            return connection.execute("DELETE FROM messages WHERE id = ? AND receipt = ? AND queue = ?", (*held, number)).rowcount == 1

        self.transactions["delete"] += 1
        return await self._database.change(change)

    async def length(self, queue: str) -> int:
        """Return the number of messages, hidden ones included. Raises `Rejected`."""
        number = self._number(queue)

        def read(connection: sqlite3.Connection) -> int:
            return int(connection.execute("SELECT count(*) FROM messages WHERE queue = ?", (number,)).fetchone()[0])

        self.transactions["length"] += 1
        return await self._database.read(read)

    async def ensure(self, queues: Sequence[str]) -> None:
        """Create the queues that are missing. Raises `Rejected` for a bad name."""
        for queue in queues:
            limits.check_queue(queue)
        await self._database.ensure(_KIND, list(queues))

    async def close(self) -> None:
        """Close the database, which the tables share."""
        await self._database.close()


def _held(message: Message) -> tuple[int, int]:
    """Return the numbers of a message and of its receipt; -1 if this store has not given it out."""
    id, receipt = message.id[1:], message.receipt[1:]
    return int(id) if id.isdecimal() else -1, int(receipt) if receipt.isdecimal() else -1
