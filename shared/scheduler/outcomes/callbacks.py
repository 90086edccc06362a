"""Callbacks: what became of an event is told by another event, which is stored when the first has ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from ...core.clock import Clock, Millis, to_text
from ...core.errors import Rejected, StorageError
from ...delivery.channels import answer_heads
from ...delivery.channels.answer_heads import AnswerHead
from ...delivery.notices import Notify
from ...storage.names import EVENTS
from ...storage.ports import Props, Row, Tables
from ...tenants.model import Durability
from ...tenants.store import TenantDirectory
from ..ingest.writer import Writer
from ..keys import digest, shard_tenant
from ..model import EventIn
from ..properties.attempts import ANSWERS, heads_by_time, history_of, last_answer
from ..properties.owed import CALLBACK_OF, NOTICE, OWED, callback_channel, done
from ..rows import EventToStore, new_event
from ..rules import asked_due
from ..shard.queued_ids import QueuedIds

log = logging.getLogger(__name__)


MOST_LABELS = 8 * 1024
"""Bytes of an event's labels that a callback repeats; longer ones are left out, so that any channel takes the callback."""


def callback_source(row: Row) -> str:
    """Return the name from which the callback's id follows. An event ends once at each place, and again elsewhere if it is redriven."""
    return f"callback:{row.props['state']}:{row.pk}/{row.rk}"


def callback_event(row: Row, event_id: str, channel: str, answers: Mapping[Millis, AnswerHead], now: Millis) -> EventToStore:
    """Return the callback of an ended event, ready to be stored. event_id: the callback's. answers: the kept heads, by their attempts."""
    props = row.props
    ended = int(props["ended"])
    durability: Durability = "mirrored" if props.get("durability") == "mirrored" else "standard"
    event = EventIn.model_construct(due=ended, channel=channel, payload=None)
    found = new_event(event, orjson.dumps(outcome_of(props, answers)), now, durability)
    found.id = found.props["id"] = event_id
    found.hash = digest("callback", event_id).hex()
    found.props[CALLBACK_OF] = props["id"]
    if "trace" in props:
        found.props["trace"] = props["trace"]
    return found


def outcome_of(props: Mapping[str, Any], answers: Mapping[Millis, AnswerHead]) -> dict[str, Any]:
    """Return the payload of the callback of an ended event."""
    state = str(props["state"])
    told: dict[str, Any] = {
        "type": f"event.{state}",
        "event": props["id"],
        "channel": props["channel"],
        "state": state,
        "due": to_text(asked_due(props, int(props["due"]))),
        "created": to_text(int(props.get("asked", props["created"]))),
        "ended": to_text(int(props["ended"])),
        "attempts": int(props.get("tries", 0)),
    }
    if state == "delivered":
        told["late_ms"] = int(props.get("late", 0))
    elif "error" in props:
        told["error"] = props["error"]
    if history := history_of(props):
        at, _, status, error, _ = history[-1][:5]
        told["last_attempt"] = to_text(at)
        if status is not None:
            told["status"] = status
        if error is not None and state != "delivered":
            told.setdefault("error", error)
        if at in answers:
            told["answer"] = answer_heads.shown(answers[at])
    if "labels" in props and len(str(props["labels"]).encode()) <= MOST_LABELS:
        told["labels"] = orjson.loads(str(props["labels"]))
    return told


class TellOutcomes(Protocol):
    """Does what is owed to ended events."""

    async def __call__(self, rows: Sequence[Row]) -> dict[str, Props]:
        """Do what is owed to these rows of one shard; a repetition changes nothing.

        Returns the changes of the rows to which nothing is owed any more, by row key. Those that are missing are to be tried again later.
        """
        ...


class CallbackWriter:
    """Stores callbacks. One per process."""

    def __init__(
        self, writer: Writer, directory: TenantDirectory, tables: Tables, queued_ids: QueuedIds, clock: Clock, notify: Notify
    ) -> None:
        self._writer, self._directory, self._tables, self._ids, self._clock = writer, directory, tables, queued_ids, clock
        self._notify = notify

    async def __call__(self, rows: Sequence[Row]) -> dict[str, Props]:
        """See `TellOutcomes`. The limits of the tenant are not asked: a callback takes the place of an event that has ended."""
        changes: dict[str, Props] = {}
        storing: dict[str, EventToStore] = {}
        tenant = shard_tenant(rows[0].pk)
        for row, event in zip(rows, await asyncio.gather(*(self._made(tenant, row) for row in rows)), strict=True):
            if isinstance(event, StorageError):
                self._postponed(row, event)
            elif event is None:
                changes[row.rk] = done()
            else:
                storing[row.rk] = event
        if storing:
            stored = await self._writer.store(tenant, list(storing.values()), posted=True)
            by_key = {row.rk: row for row in rows}
            for (rk, event), answer in zip(storing.items(), stored, strict=True):
                if isinstance(answer, Rejected):
                    extra = {"action": "callback_failed", "tenant": tenant, "event": by_key[rk].props["id"]}
                    log.error("Storage refuses the callback of event %s: %s", by_key[rk].props["id"], answer, extra=extra)
                    changes[rk] = done()
                elif isinstance(answer, StorageError):
                    self._postponed(by_key[rk], answer)
                else:
                    # An event with the id is the callback, stored before; or its cancel, which came first.
                    changes[rk] = done(str(event.id))
        late = await self._unnoted(tenant, [row for row in rows if row.rk in changes])
        return {rk: change for rk, change in changes.items() if rk not in late}

    async def _unnoted(self, tenant: str, rows: Sequence[Row]) -> set[str]:
        """Add the ends of these events to the notices of their tenant; return the keys of those whose end could not be added."""
        ends: dict[str, list[Row]] = {}
        for row in rows:
            if NOTICE in str(row.props[OWED]).split():
                ends.setdefault(str(row.props["channel"]), []).append(row)
        late: set[str] = set()
        for channel, some in ends.items():
            last = max(some, key=lambda row: int(row.props.get("ended", 0))).props
            try:
                await self._notify(tenant, "event.dead", channel, f"{last['id']}: {last.get('error', last['state'])}", len(some))
            except StorageError as error:
                late.update(row.rk for row in some)
                self._postponed(some[0], error)
        return late

    async def _made(self, tenant: str, row: Row) -> EventToStore | StorageError | None:
        """Return the callback of an ended event, or what keeps it from being made now; None if there will be none."""
        try:
            return await self._event(tenant, row)
        except StorageError as error:
            return error
        except Exception as error:
            # A defect must not keep the shard for ever.
            extra = {"action": "callback_failed", "tenant": tenant, "event": row.props.get("id")}
            log.exception("The callback of event %s could not be made: %s", row.props.get("id"), error, extra=extra)
            return None

    async def _event(self, tenant: str, row: Row) -> EventToStore | None:
        """Return the callback of an ended event; None if none is owed, or its tenant was removed. Raises `StorageError`."""
        props = row.props
        channel = callback_channel(props, str(props["state"]))
        if channel is None or await self._directory.tenant(tenant) is None:
            return None
        if await self._directory.target(tenant, channel) is None:
            # It is stored all the same, and dies at its first attempt: so it is among the dead letters, and can be redriven.
            extra = {"action": "callback_without_channel", "tenant": tenant, "event": props["id"], "channel": channel}
            log.warning("The callback of event %s is for channel %s, which no longer exists", props["id"], channel, extra=extra)
        answers = {}
        if ANSWERS in props and (found := await self._tables.get(EVENTS, row.pk, last_answer(row))) is not None:
            answers = heads_by_time([found])
        # Nothing in the id changes if an account that has not heard of the end takes over, and the event ends there in the same state.
        event_id = self._ids.derive(tenant, int(props["created"]), int(props["due"]), callback_source(row))
        return callback_event(row, event_id, channel, answers, self._clock.now())

    @staticmethod
    def _postponed(row: Row, error: StorageError) -> None:
        extra = {"action": "callback_postponed", "event": row.props["id"]}
        log.debug("The callback of event %s could not be stored yet: %s", row.props["id"], error, extra=extra)
