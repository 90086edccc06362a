"""Answers for an assistant: bounded, with times in UTC and local, secrets masked, and text that others wrote marked as data. Pure.

A text counts as the service's own only in the fields of `_OWN`, or if it has the characters of a name. All else is foreign: it stands in an
object `{"untrusted": TEXT}`, with escapes in place of characters that nobody sees.

`explain` says why an event was late, and for what an event waits that has not arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from ...core.readable import readable_duration
from ...delivery.channels.masks import mask_places
from ..declared.references import MASK
from ..doctor.tenant import LATE
from ..terminal.documents import to_json

MAX_ANSWER: Final = 30_000
"""Most characters of an answer: some 8,000 tokens."""
MAX_TEXT: Final = 1_000
"""Most characters of a text that others wrote."""
MAX_PAYLOAD: Final = 2_000
"""Most characters of a payload, as JSON."""
MAX_ATTEMPTS: Final = 5
"""Most attempts of an event; the last ones are shown."""

_OWN: Final = frozenset({"cron", "means", "do", "summary", "waits_for", "text", "late_by", "overdue_by", "reads_as"})
"""Fields whose text the service or this program has written."""
_FOREIGN: Final = frozenset({"payload", "answer", "error", "labels", "target", "note", "headers"})
"""Fields whose whole value was written by callers, receivers or operators."""
_CHOSEN: Final = frozenset({"id", "event", "behind", "callback", "callback_of", "fanout", "name", "ordering_key", "schedule"})
"""Fields with names that callers choose. Such a name is never shown as a time."""
_NAME: Final = re.compile(r"[\w.:@~/+=-]{0,256}", re.ASCII)
"""ASCII, because in scripts without spaces a whole sentence would pass for a name."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")
_KEY: Final = re.compile(r"\b(?:tsn_[A-Za-z0-9]{8,}[A-Za-z0-9_-]*|whsec_[A-Za-z0-9+/=_-]{8,})")
"""Keys of a tenant, and signing secrets. The prefix of a key, which lists of keys show, has eight characters."""
_KEY_PREFIX: Final = 12
_SECRET: Final = re.compile(
    r"authorization|cookie|password|passwd|secret|token|signature|api-?_?key|access-?_?key|credential|^sig$|^code$", re.I
)
"""Names of headers, and of parameters of a URL, whose values are masked."""
_PARAMETER: Final = re.compile(r"([?&;]([^=?&;#\s]+)=)[^&;#\s]+")
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]",
)
"""Characters that are not seen, though Python counts them as printable: fillers, and selectors of variants, 256 of which spell bytes."""
_NAMED: Final = re.compile(rb"(?<![\w-])([A-Za-z][A-Za-z0-9_-]{0,63})[\"']?[ \t]{0,8}(?:=>|[:=,])[ \t]{0,8}")
"""The name of a header or member, and what stands between it and its value."""
_QUOTED: Final = rb"\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|(?P<bare>%b)"
_VALUE: Final = re.compile(_QUOTED % rb"(?:(?i:basic|bearer|digest|negotiate|token)[ \t]{1,8})?(?:[^\s\"'<>,{}\[\]&]|,(?=[^\s]))+")
_COOKIE: Final = re.compile(_QUOTED % rb"[^\r\n\"'<>]+")
_CREDENTIALS: Final = re.compile(rb"\b(?i:bearer|basic)[ \t]{1,8}((?=[A-Za-z+/=._~-]{0,512}[0-9])[A-Za-z0-9+/=._~-]{8,})")
"""Credentials of a header whose name is not beside it."""
_COMMON: Final = re.compile(r"token|secret|signature|credentials?", re.I)
"""Names that are also words of sentences."""
_PASSWORD: Final = re.compile(r"(://[^/?#\s@:]*:)[^/?#\s@]+@")


def present(value: Any, name: str = "") -> Any:
    """Return a value of the API as an assistant gets it. name: of its field."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if name in _FOREIGN:
        return untrusted(_hidden(value, name), MAX_PAYLOAD if name == "payload" else MAX_TEXT)
    if isinstance(value, Mapping):
        return {_key(key): present(inner, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [present(inner, name) for inner in value]
    text = str(value)
    if _TIME.fullmatch(text) and name not in _CHOSEN:
        return in_both_times(text)
    masked = without_secrets(text)
    return masked if name in _OWN or _NAME.fullmatch(masked) else untrusted(masked, MAX_TEXT)


def _key(name: str) -> str:
    return name if _NAME.fullmatch(name) else visible(name)[:MAX_TEXT]


def in_both_times(text: str) -> dict[str, str]:
    """Return a time in UTC and in this machine's time zone."""
    try:
        return {"utc": text, "local": datetime.fromisoformat(text).astimezone().isoformat(timespec="milliseconds")}
    except (ValueError, OverflowError):
        # The 31st of February, or a time beyond this machine's calendar.
        return untrusted(text, MAX_TEXT)


def untrusted(value: Any, most: int) -> dict[str, str]:
    """Return foreign text, or the JSON of any other foreign value, marked as data and cut to `most` characters."""
    text = visible(without_secrets(value if isinstance(value, str) else to_json(value)))
    if len(text) <= most:
        return {"untrusted": text}
    return {"untrusted": text[:most], "left_out": f"{len(text) - most:,} of {len(text):,} characters"}


def visible(text: str) -> str:
    """Return a text with escapes in place of characters that are not seen: those could hold instructions that no person reads."""
    return "".join(sign if _is_seen(sign) else sign.encode("unicode_escape").decode() for sign in text)


def _is_seen(sign: str) -> bool:
    return sign == "\n" or (sign.isprintable() and not _BLANK.fullmatch(sign))


def without_secrets(text: str) -> str:
    """Return a text with keys, signing secrets, passwords in URLs, and values of parameters and headers with secret names masked.

    A header is found in the escapes of JSON, HTML and URLs too, as receivers quote it.
    """
    text = mask_places(text.encode(errors="surrogatepass"), _header_values).decode(errors="surrogatepass")
    text = _KEY.sub(lambda found: found[0] if len(found[0]) == _KEY_PREFIX else MASK, text)
    text = _PARAMETER.sub(lambda found: f"{found[1]}{MASK}" if _SECRET.search(found[2]) else found[0], text)
    return _PASSWORD.sub(rf"\g<1>{MASK}@", text)


def _header_values(text: bytes) -> Iterator[tuple[int, int | None]]:
    """Yield the places of the values of headers with secret names, such as `authorization: Bearer ...` and `"x-api-key": "..."`."""
    at = 0
    while found := _NAMED.search(text, at):
        name, at = found[1].decode(), found.end()
        if not _SECRET.search(name) or (value := (_COOKIE if "cookie" in name.lower() else _VALUE).match(text, at)) is None:
            continue
        # A sentence such as `token: expired` quotes no header.
        if value.lastgroup != "bare" or not _COMMON.fullmatch(name) or not value[0].isalpha():
            yield value.span(value.lastgroup or 0)
            at = value.end()
    yield from (found.span(1) for found in _CREDENTIALS.finditer(text))


def _hidden(value: Any, name: str) -> Any:
    """Return the headers of a channel, or the target of an event, with all values of headers masked, and parameters with secret names."""
    if name == "headers" and isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    if name != "target" or not isinstance(value, Mapping):
        return value
    shown = {part: _hidden(inner, part) for part, inner in value.items()}
    if isinstance(query := value.get("query"), Mapping):
        shown["query"] = {each: MASK if _SECRET.search(each) else inner for each, inner in query.items()}
    elif query:
        shown["query"] = without_secrets(f"?{query}")[1:]
    return shown


def event(found: Mapping[str, Any], *, payloads: bool) -> dict[str, Any]:
    """Return an event with its last attempts. payloads: False leaves out what callers and receivers sent."""
    shown = dict(found)
    left_out: dict[str, str] = {}
    if not payloads and shown.pop("payload", None) is not None:
        left_out["payload"] = "this server runs with --no-payloads"
    attempts = shown.pop("attempts", None) or []
    if len(attempts) > MAX_ATTEMPTS:
        left_out["attempts"] = f"the first {len(attempts) - MAX_ATTEMPTS} of {len(attempts)}"
    if attempts:
        shown["attempts"] = [
            {name: value for name, value in each.items() if payloads or name != "answer"} for each in attempts[-MAX_ATTEMPTS:]
        ]
    return {**{name: present(value, name) for name, value in shown.items()}, **({"left_out": left_out} if left_out else {})}


def listed(items: Iterable[Mapping[str, Any]], limit: int, *, narrow: str, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return at most `limit` items of a list, and what was left out. names: of the fields that are shown; empty for all."""
    chosen = tuple(names)
    found: list[dict[str, Any]] = []
    more = False
    for item in items:
        if len(found) == limit:
            more = True
            break
        found.append({name: present(value, name) for name, value in item.items() if not chosen or name in chosen})
    left_out = {"items": f"there are more than {limit}: {narrow}"} if more else {}
    return {"items": found, **({"left_out": left_out} if left_out else {})}


def to_text(document: Mapping[str, Any]) -> str:
    """Return the answer as JSON of at most `MAX_ANSWER` characters. The longest fields are cut, and named in `left_out`."""
    shown = dict(document)
    totals: dict[str, int] = {}
    while len(text := to_json(shown)) > MAX_ANSWER:
        name = max((each for each in shown if each != "left_out"), key=lambda each: len(to_json(shown[each])))
        value = shown[name]
        left_out = dict(shown.get("left_out") or {})
        if isinstance(value, list) and len(value) > 1:
            total = totals.setdefault(name, len(value))
            shown[name] = value[: max(1, min(len(value) - 1, len(value) * MAX_ANSWER // len(text)))]
            before = document.get("left_out", {}).get(name)
            left_out[name] = f"{total - len(shown[name])} of {total}, for the answer's length" + (f"; {before}" if before else "")
        else:
            del shown[name]
            left_out[name] = f"its {len(to_json(value)):,} characters, for the answer's length"
        shown["left_out"] = left_out
    return text


_HELD: Final[Mapping[str, tuple[str, str]]] = {
    "paused": ("Its channel is paused.", "Resume the channel once its receiver may have the events."),
    "breaker": ("The circuit breaker of its channel is open: its receiver fails.", "Mend the receiver."),
    "ordering-key": ("Earlier events of its ordering key have to end first.", "Examine the event that `held.behind` names."),
    "overlap": ("An earlier occurrence of its schedule has to end first.", "Examine the event that `held.behind` names."),
    "partition-owner": ("No server owns the partition of its ordering key.", "Examine the fleet of its channel with the tool doctor."),
}
_ENDED: Final[Mapping[str, tuple[str, str]]] = {
    "dead": (
        "Nothing: it is dead; no attempt succeeded, or the receiver refused it.",
        "Read `error`. Once the cause is mended, redrive it.",
    ),
    "lapsed": ("Nothing: its `expires` has passed.", "Create a new event, if it is still wanted."),
    "cancelled": ("Nothing: it was cancelled.", "Create a new event, if it is still wanted."),
}
_OPEN: Final[Mapping[str, tuple[str, str]]] = {
    "queued": ("The ingest queue, from which it is stored (durability fast).", "If it lasts, run the tool doctor."),
    "working": ("Its receiver, which has accepted it and completes it later.", "Ask the receiver's owner, if `work.deadline` is far."),
    "retrying": ("Its next attempt: the last one failed.", "Read the error of the last attempt, and mend the receiver."),
    "firing": ("The answer of its receiver.", "If it lasts, the receiver is slow."),
}


def explain(event: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the parts of the event's lateness with their meaning and the next step, or what it waits for."""
    state, due = str(event["state"]), datetime.fromisoformat(event.get("planned") or event["due"])
    shown = {name: event[name] for name in ("id", "state", "channel", "due", "planned", "created", "delivered_at") if event.get(name)}
    late = event.get("late_ms")
    if late is not None:
        shown |= {"late_ms": late, "late_by": readable_duration(late)}
    elif now > due and state not in _ENDED:
        ms = round((now - due).total_seconds() * 1000)
        shown |= {"overdue_ms": ms, "overdue_by": readable_duration(ms)}
    reasons = []
    for each in event.get("late_because") or ():
        means, do = LATE.get(each["reason"], ("No reason was recorded.", "Examine its attempts."))
        reasons.append({**each, "means": means, "do": do})
    shown["reasons"] = reasons
    if state != "delivered":
        waits, do = _waits(event, state, due, now)
        shown |= {"waits_for": waits, "do": do}
    elif not reasons:
        shown["summary"] = "It was late by less than 100 ms, for which no reason is noted." if late else "It was not late."
    more = {name: event[name] for name in ("held", "next_attempt", "work", "error", "attempts") if event.get(name)}
    return shown | more


def _waits(event: Mapping[str, Any], state: str, due: datetime, now: datetime) -> tuple[str, str]:
    if held := event.get("held"):
        return _HELD.get(held["reason"], (f"It is held: {held['reason']}.", "Examine its channel."))
    if found := _ENDED.get(state) or _OPEN.get(state):
        return found
    if now < due:
        return "Its due time, which has not come.", "Nothing."
    return "A process that takes it up: it is due, and nothing holds it.", "If it lasts, run the tool doctor."
