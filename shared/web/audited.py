"""Carries out administrative calls so that each leaves a record: who asked for what, what it changed, and how it ended.

The record is written before the change, so that no change is without one, and completed after it. Only the failover between two accounts,
which must work while one of them does not, leaves its record afterwards. A process that dies in between leaves a record without an end,
which is shown with the outcome `unknown`.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, Literal, NamedTuple, Protocol

import orjson
from pydantic import BaseModel

from ..core.errors import Problem, StorageError
from . import templates
from .etag import encode
from .fields.params import DryRun
from .routes import Answer, Call, Route

log = logging.getLogger(__name__)

SECRETS = frozenset({"key", "secret"})
"""Members of answers that no record may hold. Representations mask the other secrets."""
_URL = re.compile("https?://", re.IGNORECASE)
_MASKED = '"***"'
MOST_CHANGES = 50
MOST_TEXT = 300
"""Characters of a value, as JSON."""
_BEFORE_CHANGE = 100
"""Characters of a longer value that are shown before the first one that differs."""
_MOST_STORED = 24_000
"""Characters of all changes of a record together, which are stored in one property."""
_OF_TENANTS = frozenset({"payload", "target", "attempts"})
"""Members of events and schedules that are a tenant's data, or as long as a history. No record holds them."""
_SMALL: Final = 1024 * 1024
"""Largest body of a route whose answer is read for the id of what it made: others take batches."""

type Outcome = Literal["done", "refused", "unknown"]


class Change(NamedTuple):
    """One changed field: its path, and its values before and after as JSON; '' for none."""

    field: str
    before: str
    after: str


class AuditTrail(Protocol):
    """Stores records."""

    async def begin(self, call: Call[Any, Any, Any], action: str) -> str:
        """Store a record of a call that is about to be carried out; return its name. Raises `StorageError`."""

    async def end(self, name: str, outcome: Outcome, status: int, changes: list[Change]) -> None:
        """Complete a record. Raises `StorageError`."""

    async def add_to_second(self, call: Call[Any, Any, Any], action: str, status: int) -> None:
        """Store the record of a call that is done in the second account, which answers whenever one can switch. Raises `StorageError`."""


async def carry_out(route: Route, call: Call[Any, Any, Any], app: Any) -> Answer:
    """Carry out an administrative call and leave its record."""
    trail: AuditTrail = app.audit
    if isinstance(call.query, DryRun) and call.query.dry_run:
        return await route.handler(call)
    if route.record == "after":
        return await _record_after(route, call, trail)
    about = call if route.about is None else replace(call, params={**call.params, **route.about[1](call)})
    before = await _representation(route, about, app)
    name = await trail.begin(about, route.name)
    outcome: Outcome = "unknown"
    status, changes = 500, list[Change]()
    try:
        answer = await route.handler(call)
        outcome, status = "done", answer.status
    except Problem as refusal:
        status = refusal.status
        outcome = "refused" if status < 500 else "unknown"
        raise
    else:
        changes = await _changes(route, about, app, before, answer)
        return answer
    finally:
        await _end(trail, route, name, outcome, status, changes)


async def _changes(route: Route, call: Call[Any, Any, Any], app: Any, before: _Shown, answer: Answer) -> list[Change]:
    """Return what a call that is done has changed; nothing if it cannot be read, because the call must not fail for that."""
    try:
        after = await _representation(route, call, app) if route.shown_by is not None else _Shown(_made(route, answer), {})
    except (Problem, StorageError) as error:
        log.warning("The changes by %s are unknown: %s", route.name, error, extra={"action": "audit_incomplete", "record": route.name})
        return []
    named = _named(call.body) if route.method != "POST" else None
    replaced = [name for name in before.hidden.keys() & after.hidden.keys() if before.hidden[name] != after.hidden[name]]
    return differences(before.body, after.body, named, replaced)


def _made(route: Route, answer: Answer) -> Mapping[str, Any]:
    """Return what an answer says of what a call has made: of a tenant's data its id alone."""
    if not route.audited and route.max_body > _SMALL:
        return {}
    made = _body(answer.body)
    return made if route.audited else _only(made, frozenset({"id"}))


async def _record_after(route: Route, call: Call[Any, Any, Any], trail: AuditTrail) -> Answer:
    """Carry out a call that must work while storage does not, and then leave its record."""
    answer = await route.handler(call)
    try:
        await trail.add_to_second(call, route.name, answer.status)
    except StorageError as error:
        log.warning("There is no record of %s: %s", route.name, error, extra={"action": "audit_incomplete", "record": route.name})
    return answer


async def _end(trail: AuditTrail, route: Route, name: str, outcome: Outcome, status: int, changes: list[Change]) -> None:
    try:
        await trail.end(name, outcome, status, changes)
    except StorageError as error:
        log.warning("The record of %s was not completed: %s", route.name, error, extra={"action": "audit_incomplete", "record": name})


class _Shown(NamedTuple):
    """A representation, and the values that it masks."""

    body: Mapping[str, Any]
    hidden: Mapping[str, str]


async def _representation(route: Route, call: Call[Any, Any, Any], app: Any) -> _Shown:
    """Return what the call is about, as its GET shows it now; empty if it does not exist or has no GET of its own."""
    reader = route.shown_by
    if reader is None or not set(templates.names(reader.template)) <= call.params.keys():
        return _Shown({}, {})
    try:
        answer = await reader.handler(replace(call, service=reader.service(app), query=reader.query(), body=None, raw=b"", member=None))
    except Problem as refused:
        if refused.status != 404:
            raise
        return _Shown({}, {})
    body = _body(answer.body)
    return _Shown(body if route.audited else _only(body, body.keys() - _OF_TENANTS), answer.hidden)


def _body(body: Any) -> Mapping[str, Any]:
    if body is None:
        return {}
    found = orjson.loads(encode(body))
    return found if isinstance(found, dict) else {}


def _named(body: Any) -> frozenset[str] | None:
    return frozenset(type(body).model_fields) if isinstance(body, BaseModel) else None


def differences(
    before: Mapping[str, Any], after: Mapping[str, Any], named: frozenset[str] | None = None, replaced: Iterable[str] = ()
) -> list[Change]:
    """Return the fields that differ, without secrets; of lists the elements.

    named: the fields that the call could set; others may change by themselves. replaced: paths of masked values that the call replaced.
    """
    if before and after and named is not None:
        kept = named | (before.keys() ^ after.keys())
        before, after = _only(before, kept), _only(after, kept)
    return _first([*_compared("", before, after), *(Change(field, _MASKED, _MASKED) for field in replaced)])


def _only(values: Mapping[str, Any], names: AbstractSet[str]) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _compared(path: str, before: Any, after: Any) -> Iterator[Change]:
    """Yield the differences of two JSON values; None for one that does not exist."""
    if before == after:
        return
    if isinstance(before, dict | None) and isinstance(after, dict | None):
        old, new = before or {}, after or {}
        for name in old.keys() | new.keys():
            if name not in SECRETS or _is_pointer(name, old.get(name), new.get(name)):
                yield from _compared(f"{path}.{name}" if path else name, old.get(name), new.get(name))
    elif isinstance(before, list | None) and isinstance(after, list | None) and not _is_short_and_alone(before, after):
        yield from _compared_lists(path, before or [], after or [])
    elif (pair := _shown_pair(before, after)) != ("", ""):
        yield Change(path, *pair)


def _is_pointer(name: str, *values: Any) -> bool:
    """Return True for the JSON pointer to the key of a Kafka message. A key of a tenant never begins with a slash."""
    return name == "key" and all(value is None or (isinstance(value, str) and value.startswith("/")) for value in values)


def _is_short_and_alone(before: Any, after: Any) -> bool:
    """Return True for a list that is new or gone and can be shown as a whole."""
    return (before is None or after is None) and len(_text(before if after is None else after)) <= MOST_TEXT


def _compared_lists(path: str, before: list[Any], after: list[Any]) -> Iterator[Change]:
    """Yield the differences of two lists: the elements that only one of them has, in their order; the lists if only the order differs."""
    gone, new = _without_common(before, after), _without_common(after, before)
    if not gone and not new:
        yield Change(path, *_shown_pair(before, after))
    for old, added in zip_longest(gone, new):
        number = (added or old)[0]
        yield from _compared(f"{path}[{number}]", old and old[1], added and added[1])


def _without_common(values: list[Any], others: list[Any]) -> list[tuple[int, Any]]:
    """Return the elements, with their numbers, that the other list does not have; one that is there twice needs two there."""
    left = Counter(map(_text, others))
    found = []
    for number, value in enumerate(values):
        text = _text(value)
        if left[text]:
            left[text] -= 1
        else:
            found.append((number, value))
    return found


def _first(changes: list[Change]) -> list[Change]:
    """Return the changes by their fields; of too many the first of each member, and last their number."""
    changes.sort()
    turns = Counter[str]()
    ranked = list[tuple[int, int]]()
    for place, change in enumerate(changes):
        member = re.split(r"[.\[]", change.field, maxsplit=1)[0]
        ranked.append((turns[member], place))
        turns[member] += 1
    room, kept = _MOST_STORED, list[int]()
    for _, place in sorted(ranked):
        room -= len(orjson.dumps(list(changes[place])).decode())
        if room < 0 or len(kept) == MOST_CHANGES:
            break
        kept.append(place)
    found = [changes[place] for place in sorted(kept)]
    left = len(changes) - len(found)
    return [*found, Change("...", "", f'"{left:,} further changes"')] if left else found


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def _shown_pair(before: Any, after: Any) -> tuple[str, str]:
    """Return two values as JSON, '' for none. Long ones are cut around the first character that differs."""
    old, new = ("" if value is None or value == {} else _text(_without_query(value)) for value in (before, after))
    same = next((place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new)))
    start = max(0, same - _BEFORE_CHANGE)
    return _cut(old, start), _cut(new, start)


def _cut(text: str, start: int) -> str:
    if len(text) <= MOST_TEXT:
        return text
    begun = f"...{text[start:]}" if start else text
    return begun if len(begun) <= MOST_TEXT else f"{begun[: MOST_TEXT - 3]}..."


def _without_query(value: Any) -> Any:
    """Mask the values in a URL's query, which may be keys (`?code=...`). A change of them alone is shown as from and to the same."""
    if isinstance(value, list):
        return [_without_query(each) for each in value]
    if not isinstance(value, str) or not _URL.match(value):
        return value
    address, mark, query = value.partition("?")
    pairs = [name + "=***" if equals else "***" for name, equals, _ in (pair.partition("=") for pair in query.split("&"))]
    return f"{address}{mark}{'&'.join(pairs)}" if query else value
