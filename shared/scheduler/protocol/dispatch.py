"""Dispatch and repair: from index rows to messages.

Messages are hints. The index row is the truth about what is unfinished, so a message may be lost, doubled or late without harm.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from ...core.clock import Millis
from ...engine import effects
from ...engine.effects import Steps, get, write
from ...storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from ...storage.ports import Applied, Merge, Props, Row
from ..keys import index_partition, index_shard
from ..rules import DispatchDecision, dispatch_decision, may_take
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


def asks(row: Row, now: Millis) -> DispatchDecision:
    """What an index row asks the sweep for."""
    props = row.props
    paced = bool(props.get("events"))
    return dispatch_decision(str(props["state"]), int(props["wake"]), int(props.get("resent", 0)), now, rounds_of(row), paced=paced)


def dispatch(row: Row, now: Millis) -> Steps[str]:
    """Do what one index row asks for; answers what was done: sent, resent, or nothing."""
    todo = asks(row, now)
    message = ShardMessage(index_shard(row.rk), row.rk)
    queue = queue_for(retries_only=bool(row.props.get("retries")))
    if todo.do == "send":
        if (yield from effects.send(queue, message.text(), todo.at)):
            # On the ETag listed: if the row has changed meanwhile, what it asks for now was not sent. Refused or lost, forget it.
            yield from write(SHARDS, row.pk, Merge(row.rk, {"state": "sent"}, row.etag))
            return "sent"
    elif todo.do == "inspect" and (yield from survey(row)) is not None:
        # Marked first, so that sweeps that meet, and those that follow while nobody gets round to it, do not pile messages up.
        marked = yield from write(SHARDS, row.pk, Merge(row.rk, {"resent": now, "rounds": rounds_of(row) + 1}, row.etag))
        if isinstance(marked, Applied) and (yield from effects.send(queue, message.text(), now)):
            return "resent"
    return "nothing"


def rounds_of(row: Row) -> int:
    """How often the message of an index row was sent again, or failed for good, since the row was filed."""
    return int(row.props.get("rounds", 0))


def survey(row: Row) -> Steps[int | None]:
    """How many open events the shard of an index row has; None while somebody serves it."""
    found = yield from read_gate(index_shard(row.rk))
    if found is None:
        return 0
    gate = parse_gate(found.props)
    return gate.counts.open if may_take(gate, found.read_at - found.timestamp) or gate.state == "done" else None


def hand_out(row: Row, at: Millis, events: int) -> Steps[str]:
    """Send the message of a shard of the backlog, visible at its place on the line; answers backlog, unsent, or nothing.

    Through the queue of the retries, so that it is never ahead of punctual shards. The mark comes first and names the place: of sweeps that
    meet one wins, repair waits until the place has come, and the next sweep's line goes on from there.
    """
    again = row.props["state"] == "sent"
    mark: Props = {"state": "sent", "resent": at, "events": events, "rounds": rounds_of(row) + again}
    marked = yield from write(SHARDS, row.pk, Merge(row.rk, mark, row.etag))
    if not isinstance(marked, Applied):
        return "nothing"
    if (yield from effects.send(QUEUE_RETRIES, ShardMessage(index_shard(row.rk), row.rk).text(), at)):
        return "backlog"
    # Nobody was told: as if it had not been dispatched.
    before: Props = {"state": "pending", "events": 0, "rounds": rounds_of(row)}
    yield from write(SHARDS, row.pk, Merge(row.rk, before, marked.etags[0]))
    return "unsent"


def postpone(message: ShardMessage, now: Millis) -> Steps[int | None]:
    """After a message that failed for good: let the index ask for the shard again, later each time; answers how often it was asked for
    in vain, or None when the message's index row is gone, and with it the need."""
    partition = index_partition(message.shard)
    while True:
        row = yield from get(SHARDS, partition, message.index)
        if row is None:
            return None
        rounds = rounds_of(row) + 1
        # An index row that has not been dispatched yet is not to wait for long: nothing has failed under it.
        mark: Props = {"resent": now, "rounds": rounds} if row.props["state"] == "sent" else {"rounds": rounds}
        if isinstance((yield from write(SHARDS, partition, Merge(row.rk, mark, row.etag))), Applied):
            return rounds


def send(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """One message, visible from `at` on."""
    return (yield from effects.send(queue_for(retries_only=retries_only), message.text(), at))


def announce(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """Send the message of a shard whose index row says `sent`; if the queue does not take it, hand the row back to the sweep."""
    if (yield from send(message, at, retries_only=retries_only)):
        return True
    partition = index_partition(message.shard)
    row = yield from get(SHARDS, partition, message.index)
    if row is not None and row.props["state"] == "sent":
        yield from write(SHARDS, partition, Merge(row.rk, {"state": "pending"}, row.etag))
    return False
