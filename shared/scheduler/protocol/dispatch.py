"""Dispatch and repair: from index rows to messages.

Messages are hints. The index row is the truth about what is unfinished, so a message may be lost, doubled or late without harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from ...clock import Millis
from ...storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from ...storage.ports import Applied, Merge, Row
from ..keys import index_partition, index_shard
from ..rules import may_take, nudge
from .effects import Get, Send, Steps, Write
from .gate import parse_gate, read_gate


@dataclass(frozen=True, slots=True)
class ShardMessage:
    """Serve `shard`; `index` is the row key of the index row that asked for it."""

    shard: str
    index: str

    def text(self) -> str:
        return orjson.dumps({"shard": self.shard, "index": self.index}).decode()


def parse_message(text: str) -> ShardMessage:
    """The inverse of `ShardMessage.text`; ValueError for anything else."""
    found = orjson.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("shard"), str) or not isinstance(found.get("index"), str):
        raise ValueError("not a shard message")
    return ShardMessage(found["shard"], found["index"])


def queue_for(*, retries_only: bool) -> str:
    """Retries have a queue of their own, so that they never delay fresh events."""
    return QUEUE_RETRIES if retries_only else QUEUE_SHARDS


def dispatch(row: Row, now: Millis) -> Steps[str]:
    """Do what one index row asks for; answers what was done: sent, resent, or nothing."""
    todo = nudge(str(row.props["state"]), int(row.props["wake"]), int(row.props.get("resent", 0)), now)
    message = ShardMessage(index_shard(row.rk), row.rk)
    queue = queue_for(retries_only=bool(row.props.get("retries")))
    if todo.do == "send":
        if (yield Send(queue, message.text(), todo.at)):
            # On the ETag listed: if the row has changed meanwhile, what it asks for now was not sent. Refused or lost, forget it.
            yield Write(SHARDS, row.pk, (Merge(row.rk, {"state": "sent"}, row.etag),))
            return "sent"
    elif todo.do == "inspect":
        gate = yield from read_gate(message.shard)
        if gate is None or may_take(parse_gate(gate.props), gate.read_at - gate.timestamp) or gate.props["state"] == "done":
            # Marked first, so that sweeps that meet, and those that follow while nobody gets round to it, do not pile messages up.
            marked = yield Write(SHARDS, row.pk, (Merge(row.rk, {"resent": now}, row.etag),))
            if isinstance(marked, Applied) and (yield Send(queue, message.text(), now)):
                return "resent"
    return "nothing"


def send(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """One message, visible from `at` on."""
    taken: bool = yield Send(queue_for(retries_only=retries_only), message.text(), at)
    return taken


def announce(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """Send the message of a shard whose index row says `sent`; if the queue does not take it, hand the row back to the sweep."""
    if (yield from send(message, at, retries_only=retries_only)):
        return True
    partition = index_partition(message.shard)
    row: Row | None = yield Get(SHARDS, partition, message.index)
    if row is not None and row.props["state"] == "sent":
        yield Write(SHARDS, partition, (Merge(row.rk, {"state": "pending"}, row.etag),))
    return False
