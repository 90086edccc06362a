"""Dispatch and repair: from index rows to messages.

Messages are hints. The index row is the truth about unfinished shards, so a message may be lost, repeated or late without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from ...core.clock import Millis
from ...engine import effects
from ...engine.effects import Steps, get, write
from ...storage.names import QUEUE_RETRIES, QUEUE_SHARDS, SHARDS
from ...storage.ports import Applied, Merge, Props, Row
from ..keys import index_partition, index_shard
from ..rules import DispatchDecision, MessageState, dispatch_decision, may_recover, may_take, shared_wake
from ..shard.gate import Gate, parse_gate, process_of, read_gate
from ..timings import DISPATCH_AHEAD

MOST_TOGETHER = 64
"""Most shards of one message: some 8 KB of the queue's 48."""


@dataclass(frozen=True, slots=True)
class ShardMessage:
    """A request to serve `shard`; `index` is the row key of the index row that asked for it.

    ended: name of an owner that its sender has proven to have ended; '' for none. Owners' names are never used again, so it stays true.
    wake: wake-up of a shard with many events, which processes share (`firing/invocations.py`); 0 for another shard.
    passed: number of times that a process has left the shard to another one. sender: name of the last of them. load: number of such
    shards that it served. earlier: time by which the message comes earlier than usual; the owner waits for its events as much longer.
    """

    shard: str
    index: str
    ended: str = ""
    wake: Millis = 0
    passed: int = 0
    sender: str = ""
    load: int = 0
    earlier: Millis = 0
    shared: bool = field(default=False, compare=False)

    def text(self) -> str:
        return orjson.dumps(self._members()).decode()

    def _members(self) -> dict[str, Any]:
        more = {"ended": self.ended, "wake": self.wake, "passed": self.passed, "sender": self.sender, "load": self.load}
        more["earlier"] = self.earlier
        return {"shard": self.shard, "index": self.index, **{name: value for name, value in more.items() if value}}

    def alone(self) -> ShardMessage:
        """Return the same request without what counts in a burst: for a message that comes later."""
        return replace(self, wake=0, passed=0, sender="", load=0, shared=False)


def text_together(messages: Sequence[ShardMessage]) -> str:
    """Return one text for several messages; the text of a message that is alone."""
    if len(messages) == 1:
        return messages[0].text()
    return orjson.dumps({"more": [each._members() for each in messages]}).decode()


def parse_message(text: str) -> ShardMessage:
    """Parse `ShardMessage.text`, or the first message of `text_together`; ValueError for anything else."""
    return parse_messages(text)[0]


def parse_messages(text: str) -> list[ShardMessage]:
    """Parse `text_together`; ValueError for anything else. Members that a later version adds are passed over."""
    found = orjson.loads(text)
    together = found.get("more") if isinstance(found, dict) else None
    if not (isinstance(together, list) and together):
        return [_message_of(found)]
    return [replace(_message_of(each), shared=True) for each in together]


def _message_of(found: Any) -> ShardMessage:
    if not isinstance(found, dict) or not isinstance(found.get("shard"), str) or not isinstance(found.get("index"), str):
        raise ValueError("not a shard message")
    if not all(isinstance(found.get(name, 0), int | float) for name in ("wake", "passed", "load", "earlier")):
        raise ValueError("not a shard message: its numbers are none")
    return ShardMessage(
        found["shard"],
        found["index"],
        ended=str(found.get("ended", "")),
        wake=int(found.get("wake", 0)),
        passed=int(found.get("passed", 0)),
        sender=str(found.get("sender", "")),
        load=int(found.get("load", 0)),
        earlier=int(found.get("earlier", 0)),
    )


def queue_for(*, retries_only: bool) -> str:
    """Return the queue of a message. Retries have a queue of their own, so that they never delay fresh events."""
    return QUEUE_RETRIES if retries_only else QUEUE_SHARDS


def decide(row: Row, now: Millis, events: int = 0, ahead: Millis = DISPATCH_AHEAD) -> DispatchDecision:
    """Decide what a look does about an index row. events, ahead: see `dispatch_decision`."""
    return dispatch_decision(message_state(row), now, paced=bool(row.props.get("events")), events=events, ahead=ahead)


def message_state(row: Row) -> MessageState:
    """Return the state of the message of an index row's shard."""
    props = row.props
    return MessageState(str(props["state"]), int(props["wake"]), int(props.get("resent", 0)), rounds_of(row))


def dispatch_in_time(row: Row, now: Millis) -> Steps[str]:
    """Do what `dispatch` does, and let the message of a shard with many events come earlier. The shard's gate has their number."""
    if decide(row, now).do != "send":
        return (yield from dispatch(row, now))
    return (yield from dispatch(row, now, (yield from events_to_load(row))))


def events_to_load(row: Row) -> Steps[int]:
    """Return the number of events that an owner must load and claim before the wake-up, as the shard's gate has it; 0 for retries, which
    may be late."""
    if row.props.get("retries"):
        return 0
    found = yield from read_gate(index_shard(row.rk))
    return parse_gate(found.props).counts.open if found is not None else 0


def send_together(rows: Sequence[Row], at: Millis, earlier: Millis = 0) -> Steps[bool]:
    """Send one message for the shards of several index rows; return False if the queue refuses it. `mark_sent` follows for each row.

    at: the usual time of the message, which comes `earlier`.
    """
    messages = [ShardMessage(index_shard(row.rk), row.rk, earlier=earlier) for row in rows]
    return (yield from effects.send(queue_for(retries_only=bool(rows[0].props.get("retries"))), text_together(messages), at - earlier))


def mark_sent(row: Row) -> Steps[str]:
    """Note that the message of an index row was sent; return sent.

    On the listed ETag: if the row has changed, its new request was not sent. A refused or lost write needs no action.
    """
    yield from write(SHARDS, row.pk, Merge(row.rk, {"state": "sent"}, row.etag))
    return "sent"


def dispatch(row: Row, now: Millis, events: int = 0, earlier: Millis = 0) -> Steps[str]:
    """Carry out the decision about one index row; return sent, resent, or nothing. events: see `dispatch_decision`. earlier: see
    `ShardMessage`."""
    todo = decide(row, now, events)
    message = ShardMessage(index_shard(row.rk), row.rk, wake=shared_wake(int(row.props["wake"]), events))
    queue = queue_for(retries_only=bool(row.props.get("retries")))
    if todo.do == "send":
        if (yield from effects.send(queue, replace(message, earlier=earlier).text(), todo.at - earlier)):
            return (yield from mark_sent(row))
    elif todo.do == "inspect" and (yield from unserved_events(row)) is not None:
        # The mark comes first, so that sweeps that meet, and later ones while no owner comes, do not send more and more messages.
        marked = yield from write(SHARDS, row.pk, Merge(row.rk, {"resent": now, "rounds": rounds_of(row) + 1}, row.etag))
        if isinstance(marked, Applied) and (yield from effects.send(queue, message.text(), now)):
            return "resent"
    return "nothing"


def rounds_of(row: Row) -> int:
    """Return how many times an index row's message was sent again, or failed for good, since the row was filed."""
    return int(row.props.get("rounds", 0))


def unserved_events(row: Row) -> Steps[int | None]:
    """Return the number of open events of an index row's shard; None while an owner serves it."""
    found = yield from read_gate(index_shard(row.rk))
    if found is None:
        return 0
    gate = parse_gate(found.props)
    return gate.counts.open if may_take(gate, found.read_at - found.timestamp) or gate.state == "done" else None


class RecoveryLook(NamedTuple):
    """The result of one check of an index row. gate: None if no gate was read or there is none. age: of the gate, by the store's time."""

    asked: bool
    gate: Gate | None = None
    age: Millis = 0


def recover(row: Row, now: Millis, has_ended: Callable[[str], bool], *, late: bool = False, began: Millis = 0) -> Steps[RecoveryLook]:
    """Send the message of a shard at once if its owner, or its former message, was lost with a process.

    has_ended: returns True if the process of an identity is proven to have ended. late: the shard belongs to the backlog.
    Then the message is sent only if the owner's process has ended; other messages follow the backlog's time-line. The mark is the one of
    `dispatch`. began: see `may_recover`.
    """
    state = message_state(row)
    # The rule for an owner that has ended is the wider one: it decides which gates are read.
    if not may_recover(state, now, ended=True):
        return RecoveryLook(False)
    found = yield from read_gate(index_shard(row.rk))
    gate = parse_gate(found.props) if found is not None else None
    age = found.read_at - found.timestamp if found is not None else 0
    ended = ended_owner(gate, has_ended) if gate is not None else ""
    if not ended and (late or not may_recover(state, now, ended=False, began=began) or (gate is not None and not may_take(gate, age))):
        return RecoveryLook(False, gate, age)
    marked = yield from write(SHARDS, row.pk, Merge(row.rk, {"resent": now, "rounds": rounds_of(row) + 1}, row.etag))
    message = ShardMessage(index_shard(row.rk), row.rk, ended)
    # A shard of the backlog must not be ahead of punctual ones.
    queue = queue_for(retries_only=late or bool(row.props.get("retries")))
    sent = isinstance(marked, Applied) and (yield from effects.send(queue, message.text(), now))
    return RecoveryLook(sent, gate, age)


def ended_owner(gate: Gate, has_ended: Callable[[str], bool]) -> str:
    """Return the gate's owner if its process is proven to have ended, else ''."""
    process = process_of(gate)
    return gate.holder if process and has_ended(process) else ""


def hand_out(row: Row, at: Millis, events: int) -> Steps[str]:
    """Send the message of a backlog's shard, visible at its place on the line; return backlog, unsent, or nothing.

    It uses the queue of retries, so that it is never ahead of punctual shards. The mark comes first and names the place: of sweeps that
    meet, one wins; repair waits until the place has come; and the next sweep's line continues from there.
    """
    again = row.props["state"] == "sent"
    mark: Props = {"state": "sent", "resent": at, "events": events, "rounds": rounds_of(row) + again}
    marked = yield from write(SHARDS, row.pk, Merge(row.rk, mark, row.etag))
    if not isinstance(marked, Applied):
        return "nothing"
    if (yield from effects.send(QUEUE_RETRIES, ShardMessage(index_shard(row.rk), row.rk).text(), at)):
        return "backlog"
    # No message was sent: undo the dispatch.
    before: Props = {"state": "pending", "events": 0, "rounds": rounds_of(row)}
    yield from write(SHARDS, row.pk, Merge(row.rk, before, marked.etags[0]))
    return "unsent"


def postpone(message: ShardMessage, now: Millis) -> Steps[int | None]:
    """Let the index ask for a shard again, later each time, after its message failed for good.

    Returns the number of unsuccessful messages, or None if the message's index row is gone, and with it the need.
    """
    partition = index_partition(message.shard)
    while True:
        row = yield from get(SHARDS, partition, message.index)
        if row is None:
            return None
        rounds = rounds_of(row) + 1
        # An index row that was not dispatched yet must not wait for long: nothing has failed under it.
        mark: Props = {"resent": now, "rounds": rounds} if row.props["state"] == "sent" else {"rounds": rounds}
        if isinstance((yield from write(SHARDS, partition, Merge(row.rk, mark, row.etag))), Applied):
            return rounds


def send(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """Send one message that becomes visible at `at`."""
    return (yield from effects.send(queue_for(retries_only=retries_only), message.text(), at))


def announce(message: ShardMessage, at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """Send the message of a shard whose index row says `sent`; if the queue refuses it, leave the shard to the sweep."""
    return (yield from announce_together([message], at, retries_only=retries_only))


def announce_together(messages: Sequence[ShardMessage], at: Millis, *, retries_only: bool = False) -> Steps[bool]:
    """Send one message for several shards whose index rows say `sent`; if the queue refuses it, leave them to the sweep."""
    if (yield from effects.send(queue_for(retries_only=retries_only), text_together(messages), at)):
        return True
    for message in messages:
        partition = index_partition(message.shard)
        row = yield from get(SHARDS, partition, message.index)
        if row is not None and row.props["state"] == "sent":
            yield from write(SHARDS, partition, Merge(row.rk, {"state": "pending"}, row.etag))
    return False
