"""Event rows: encoding of accepted events, and their representation.

These rows are written and read by hand instead of with `engine.row_codec`: each step of a delivery reads a few of 28 properties and merges
a few. `python -m bench rows` compares the two on one core: 245,000 rows a second are written by hand and 182,000 with the codec (1.4 us
more), 1,152,000 are read by hand and 284,000 with the codec (2.7 us more). A delivery reads its row in several steps: claim, attempt,
outcome, ledger.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from ..core.clock import Millis, to_text
from ..core.durations import format_duration
from ..delivery.channels.answer_heads import AnswerHead
from ..delivery.channels.content import CONTENT_TYPE, JSON, bytes_of, is_content_type
from ..delivery.channels.event_target import EVENT_TARGET
from ..storage.ports import Props, Row
from ..tenants.model import Durability
from ..web.etag import etag_of
from .keys import shard_tenant
from .properties import attempts
from .properties.late_reasons import late_because
from .properties.overlap import KEY
from .properties.owed import CALLBACK, CALLBACK_OF, NOTICE, callback_channels, callbacks_props
from .properties.work_rows import noted_work, shown_work, work_of
from .rules import GOING, NEVER, asked_due

if TYPE_CHECKING:
    from .model import EventIn, RetryIn

COLLAPSE, FIRST = "collapse", "first"
"""Properties of an event that collapses: the longest delay, and when the first event that it stands for was accepted."""
TIMEOUT = "timeout"
"""Property of an event row: the longest time of an attempt. Missing, or 0 after a change, for an event that has its channel's."""
FANOUT, CHANNELS = "fanout", "channels"
"""Properties of an event of a fan-out: the fan-out's id; and of its first event, the names of all channels with commas between them."""
CHUNK = 16_000
"""Characters of payload text per property: at most 32,000 UTF-16 units, under the store's 32K."""
OVERHEAD = 500
"""Bytes of an encoded row without the payload, rounded up."""
_ESCAPED = (b'"', b"\\", b"\n", b"\r", b"\t")
_SEPARATORS = (b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""Line and paragraph separators, which are encoded as six characters."""
_LONG_NUMBER = re.compile(rb"[0-9-](?:(?<=-)0|(?<=[0-9])(?:[.eE]|[0-9]{15}))")
"""Text that may contain a number which a double, or 64 bits, would change."""
_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_MOST_EXPONENT = 18
"""Digits of an exponent up to which two spellings of a number are found to be equal."""
MOST_VALUES = 3_000
"""Commas, colons and brackets of a payload up to which it is compared by its value: this takes up to 8 ms. Others are compared as sent."""


@dataclass(slots=True)
class EventToStore:
    """An accepted event before it is stored. `size`: bytes of its encoded row."""

    props: Props
    due: Millis
    size: int
    id: str | None = None
    hash: str = ""
    durability: Durability = "standard"
    term: int | None = None
    """For an event of the ingest queue: the epoch of the fence under which the second account of a mirrored pair accepted it; 0 if the
    first account may have it. None: an event that cannot wait until the first account answers."""
    reuses: Callable[[Mapping[str, Any]], bool] | None = None
    """Returns True if the event may take its id over from one with these properties. None: it takes no id over."""

    @property
    def fanout(self) -> str | None:
        """The fan-out's id, which names its first event beside its own; None for all other events."""
        return str(self.props[FANOUT]) if CHANNELS in self.props else None

    @property
    def names(self) -> tuple[str, ...]:
        """The ids that are to name the event, in the order in which they are registered: none if the client chose none."""
        if self.id is None:
            return ()
        return (self.id,) if CHANNELS not in self.props else (str(self.props[FANOUT]), self.id)


def body_props(body: bytes) -> Props:
    """Return the payload's JSON text, cut to fit string properties."""
    text = body.decode()
    if len(text) <= CHUNK:
        return {"body": text}
    parts = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    return {"chunks": len(parts), **{f"body{number}" if number else "body": part for number, part in enumerate(parts)}}


def body_of(props: Mapping[str, Any]) -> bytes:
    """Return the payload's JSON exactly as sent."""
    text = str(props["body"])
    if "chunks" in props:
        # Counted, because a shorter payload that is merged over a longer one leaves the old tail behind.
        for number in range(1, int(props["chunks"])):
            text += str(props[f"body{number}"])
    return text.encode()


def content_of(props: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return the body to deliver, and its type. Raises ValueError for a payload with a type that is none, or that stands for no bytes."""
    body, kind = body_of(props), str(props.get(CONTENT_TYPE) or "")
    if not kind:
        return body, JSON
    if not is_content_type(kind):
        raise ValueError("not a content type")
    return bytes_of(body), kind


def encoded_size(*texts: bytes) -> int:
    """Estimate the bytes of a row with these texts in a batch: JSON inside JSON escapes quotes, backslashes and unusual line breaks."""
    text = b"".join(texts) if len(texts) > 1 else texts[0]
    # Most texts have no backslash and are ASCII; looking for these is faster than counting them.
    backslashes = text.count(b"\\") if text.find(b"\\") >= 0 else 0
    breaks = 0 if text.isascii() else text.count(b"\xe2\x80")
    return OVERHEAD + len(text) + text.count(b'"') + backslashes + 3 * breaks


_LONG = ("labels", "pauses", KEY, EVENT_TARGET, CONTENT_TYPE)
"""Properties of an event, beside its payload, that may be long."""


def row_size(body: bytes, props: Mapping[str, Any]) -> int:
    """Estimate the bytes of an event's row with this payload; see `encoded_size`."""
    return encoded_size(body, *[str(props[name]).encode() for name in _LONG if name in props])


def retry_props(retry: RetryIn | None) -> Props:
    """Return the properties of an event's own retry policy; None: those of an event that loses it."""
    if retry is None:
        return {"retry": "", "pauses": ""}
    given = {name: value for name, value in retry if value is not None and name != "schedule"}
    if retry.schedule is None:
        return {"retry": orjson.dumps(given).decode()}
    # The pauses are a property of their own, because each member of `retry` is shown as a duration.
    props: Props = {"retry": orjson.dumps(given).decode()} if given else {}
    return {**props, "pauses": orjson.dumps(retry.schedule).decode()}


def content_hash(event: EventIn, body: bytes) -> str:
    """Return a hash that is equal for equal content as sent: sorted members and channels, `delay` as delay, defaults not filled in.

    `on_conflict` is about the request alone.
    """
    content = event.model_dump(exclude_unset=True, exclude={"id", "payload", "on_conflict"})
    if event.channels is not None:
        content["channels"] = sorted(event.channels)
    canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS) + canonical_json(body)
    return hashlib.sha256(canonical).hexdigest()[:32]


def canonical_json(body: bytes) -> bytes:
    """Return the same bytes for the same JSON value in any layout. Numbers are compared to their last digit.

    A payload of more than `MOST_VALUES`, and none at all, is returned as it is.
    """
    if not body or sum(map(body.count, (b",", b":", b"[", b"{"))) > MOST_VALUES:
        return body
    if _LONG_NUMBER.search(body):
        return orjson.dumps(json.loads(body, parse_int=_number, parse_float=_number), option=orjson.OPT_SORT_KEYS)
    return orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)


def _number(text: str) -> int | str:
    """Return the exact number: one value for all its spellings, and never one value for two numbers."""
    found = _NUMBER.fullmatch(text)
    assert found is not None  # the JSON parser has read it
    sign, whole, part, exponent = found.groups("")
    digits = (whole + part).lstrip("0")
    figures = digits.rstrip("0")
    if not figures:
        return 0
    # Without its zeros: Python reads no number of thousands of digits, whatever they are.
    scale = exponent.lstrip("+-0") or "0"
    if len(scale) > _MOST_EXPONENT:
        return "\0" + text
    power = int(scale) * (-1 if exponent.startswith("-") else 1) - len(part) + len(digits) - len(figures)
    if power >= 0 and len(figures) + power < 16:
        return int(figures + "0" * power) * (-1 if sign else 1)
    # Normal strings do not begin with a NUL.
    return f"\0{sign}{figures}e{power}"


def new_event(
    event: EventIn, body: bytes, now: Millis, durability: Durability = "standard", since: Millis | None = None, shift: Millis = 0
) -> EventToStore:
    """Return the row of an accepted event, without its id if the client chose none.

    since: time from which its delay counts, if not `now`. shift: its place in its flexible window (`rules.spread`).
    """
    due = (event.due if event.due is not None else (now if since is None else since) + (event.delay or 0)) + shift
    labels = orjson.dumps(event.labels) if event.labels else b""
    target = event.target.stored() if event.target is not None else ""
    props: Props = {"state": "scheduled", "due": due, "created": now, "channel": event.channel, "size": 0, **body_props(body)}
    if event.expires is not None:
        props["expires"] = event.expires
    if event.flex:
        props["flex"], props["shift"] = event.flex, shift
    if event.retry is not None:
        props |= retry_props(event.retry)
    if event.timeout is not None:
        props[TIMEOUT] = event.timeout
    if event.content_type is not None:
        props[CONTENT_TYPE] = event.content_type
    if event.labels:
        props["labels"] = labels.decode()
    if event.collapse is not None:
        due = min(due, now + event.collapse)
        props.update({"due": due, COLLAPSE: event.collapse, FIRST: now})
    if event.ordering_key is not None:
        props[KEY] = event.ordering_key
    if target:
        props[EVENT_TARGET] = target
    if event.on_delivered is not None or event.on_dead is not None:
        props |= callbacks_props(event.on_delivered, event.on_dead)
    if durability != "standard":
        props["durability"] = durability
    size = props["size"] = row_size(body, props)
    if event.id is None:
        return EventToStore(props, due, size, durability=durability)
    props["id"] = event.id
    return EventToStore(props, due, size, event.id, content_hash(event, body), durability)


def withdrawn(event_id: str, created: Millis, due: Millis, now: Millis, nonce: str) -> EventToStore:
    """Return the row of an event that is cancelled before it left the ingest queue. Only the facts in its id are known."""
    props: Props = {
        "id": event_id,
        "state": "cancelled",
        "due": due,
        "created": now,
        "asked": created,
        "channel": "",
        "size": OVERHEAD,
        "body": "",
        "durability": "fast",
        "ended": now,
        "by": nonce,
    }
    return EventToStore(props, due, OVERHEAD, event_id, durability="fast", term=0)


def etag_of_row(row: Row) -> str:
    """Return the representation's ETag: it changes with the row, and when the event moves to another place."""
    return etag_of(row.pk, row.rk, row.etag)


def shown_state(props: Mapping[str, Any]) -> str:
    """Return the state that users see: an event that is being moved is still scheduled, and one that a receiver works on is no retry."""
    state = str(props["state"])
    if state == "retrying" and work_of(props) is not None:
        return "working"
    return "scheduled" if state in GOING else state


_PLAIN = frozenset({"id", "state", "due", "created", "channel", "size", "body"})
"""The properties of an event without any option, before its first attempt."""


def representation(row: Row, answers: Mapping[Millis, AnswerHead] = {}) -> dict[str, Any]:
    """Return the event's representation, ready for orjson; the payload is passed through unchanged.

    answers: the heads of receivers' answers, by the times of their attempts.
    """
    props = row.props
    state = shown_state(props)
    due = int(props["target_due"] if props["state"] in GOING else props["due"])
    shown: dict[str, Any] = {
        "id": props["id"],
        "tenant": shard_tenant(row.pk),
        "state": state,
        "due": to_text(asked_due(props, due)),
        # An event that waited in the ingest queue is filed under the time it was stored, but was accepted before.
        "created": to_text(int(props.get("asked", props["created"]))),
    }
    if props["channel"]:
        # Both are unknown for an event that was cancelled before it was stored.
        shown["channel"] = props["channel"]
        if body := body_of(props):
            shown["payload"] = orjson.Fragment(body)
        if props.get(CONTENT_TYPE):
            shown["content_type"] = props[CONTENT_TYPE]
    if state == "scheduled" and props.keys() <= _PLAIN:
        # Nearly all posted events are like this. None of the further members applies to them.
        shown["attempts"] = []
        return shown
    shown["attempts"] = attempts.attempts_for_api(props, answers)
    if "durability" in props:
        shown["durability"] = props["durability"]
    if int(props.get("expires", NEVER)) != NEVER:
        shown["expires"] = format_duration(int(props["expires"]))
    if props.get("flex"):
        shown["flex"] = format_duration(int(props["flex"]))
        shown["planned"] = to_text(due)
    if props.get("retry"):
        given = orjson.loads(str(props["retry"]))
        shown["retry"] = {name: value if name == "attempts" else format_duration(value) for name, value in given.items()}
    if props.get("pauses"):
        shown["retry"] = {**shown.get("retry", {}), "schedule": [format_duration(value) for value in orjson.loads(str(props["pauses"]))]}
    if props.get(TIMEOUT):
        shown["timeout"] = format_duration(int(props[TIMEOUT]))
    if "labels" in props:
        shown["labels"] = orjson.Fragment(str(props["labels"]))
    if COLLAPSE in props:
        shown["collapse"] = format_duration(int(props[COLLAPSE]))
    if KEY in props:
        shown["ordering_key"] = props[KEY]
    if FANOUT in props:
        shown["fanout"] = props[FANOUT]
    if props.get(EVENT_TARGET):
        shown["target"] = orjson.Fragment(str(props[EVENT_TARGET]))
    shown |= {f"on_{outcome}": channel for outcome, channel in callback_channels(props).items()}
    shown |= {name: props[name] for name in (CALLBACK, CALLBACK_OF, NOTICE) if name in props}
    if state == "retrying":
        shown["next_attempt"] = to_text(int(props["next"]))
    if state == "working" and (work := noted_work(props)) is not None:
        shown["work"] = shown_work(props, work)
    if state == "delivered":
        shown["delivered_at"] = to_text(int(props["ended"]))
        shown["late_ms"] = props["late"]
    late = int(props["late"]) if state == "delivered" else None
    if reasons := late_because(props, late):
        shown["late_because"] = reasons
    if state in ("dead", "lapsed") and "error" in props:
        shown["error"] = props["error"]
    return shown
