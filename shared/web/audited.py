"""Carries out administrative calls so that each leaves a record: who asked for what, what it changed, and how it ended.

The record is written before the change, so that no change is without one, and completed after it. Only the failover between two accounts,
which must work while one of them does not, leaves its record afterwards. A process that dies in between leaves a record without an end,
which is shown with the outcome `unknown`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

import orjson
from pydantic import BaseModel

from ..core.errors import Problem, StorageError
from . import templates
from .encoding import encode
from .fields.params import DryRun
from .routes import Answer, Call, Route

log = logging.getLogger(__name__)

SECRETS = frozenset({"key", "secret"})
"""Members of answers that no record may hold. Representations mask the other secrets."""
_URL = re.compile("https?://", re.IGNORECASE)
MOST_CHANGES = 50
MOST_TEXT = 300
"""Characters of a value, as JSON."""

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


async def _changes(route: Route, call: Call[Any, Any, Any], app: Any, before: Mapping[str, Any], answer: Answer) -> list[Change]:
    """Return what a call that is done has changed; nothing if it cannot be read, because the call must not fail for that."""
    try:
        after = await _representation(route, call, app) if route.shown_by is not None else _body(answer.body)
    except (Problem, StorageError) as error:
        log.warning("The changes by %s are unknown: %s", route.name, error, extra={"action": "audit_incomplete", "record": route.name})
        return []
    return differences(before, after, _named(call.body) if route.method != "POST" else None)


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


async def _representation(route: Route, call: Call[Any, Any, Any], app: Any) -> Mapping[str, Any]:
    """Return what the call is about, as its GET shows it now; empty if it does not exist or has no GET of its own."""
    reader = route.shown_by
    if reader is None or not set(templates.names(reader.template)) <= call.params.keys():
        return {}
    try:
        answer = await reader.handler(replace(call, service=reader.service(app), query=reader.query(), body=None, raw=b"", member=None))
    except Problem as missing:
        if missing.status != 404:
            raise
        return {}
    return _body(answer.body)


def _body(body: Any) -> Mapping[str, Any]:
    if body is None:
        return {}
    found = orjson.loads(encode(body))
    return found if isinstance(found, dict) else {}


def _named(body: Any) -> frozenset[str] | None:
    return frozenset(type(body).model_fields) if isinstance(body, BaseModel) else None


def differences(before: Mapping[str, Any], after: Mapping[str, Any], named: frozenset[str] | None = None) -> list[Change]:
    """Return the fields that differ, without secrets. named: the fields that the call could set; others may change by themselves."""
    if before and after and named is not None:
        kept = named | (before.keys() ^ after.keys())
        before, after = _only(before, kept), _only(after, kept)
    old, new = dict(_leaves("", before)), dict(_leaves("", after))
    return [
        Change(field, _shown(old.get(field)), _shown(new.get(field)))
        for field in sorted(old.keys() | new.keys())
        if old.get(field) != new.get(field)
    ][:MOST_CHANGES]


def _only(values: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def _leaves(path: str, value: Any) -> list[tuple[str, Any]]:
    """Return the members of a JSON value that are no objects themselves, with their paths."""
    if isinstance(value, dict) and value:
        parts = [_leaves(f"{path}.{name}" if path else name, part) for name, part in value.items() if name not in SECRETS]
        return [leaf for part in parts for leaf in part]
    return [] if value is None or value == {} else [(path, value)]


def _shown(value: Any) -> str:
    return "" if value is None else orjson.dumps(_without_query(value)).decode()[:MOST_TEXT]


def _without_query(value: Any) -> Any:
    """Mask the values in a URL's query, which may be keys (`?code=...`). A change of them alone is shown as from and to the same."""
    if isinstance(value, list):
        return [_without_query(each) for each in value]
    if not isinstance(value, str) or not _URL.match(value):
        return value
    address, mark, query = value.partition("?")
    pairs = [name + "=***" if equals else "***" for name, equals, _ in (pair.partition("=") for pair in query.split("&"))]
    return f"{address}{mark}{'&'.join(pairs)}" if query else value
