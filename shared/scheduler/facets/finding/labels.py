"""Searchable labels: the mark of an event that is found by them, and the names of its label rows (`rows`). Pure.

Only events that carry the mark (`MARK`) have label rows of their own; the pass of `label_index`, and owners before they leave a shard, file
those of events that were stored before their tenant declared the label.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import orjson

from ....storage.ports import Props, Row, Value
from ...keys import digest

MARK: Final = "searched"
"""Property of an event: the names of its labels that have label rows, with commas between them. Absent: none."""


def mark_of(labels: Value, searchable: Collection[str]) -> Props:
    """Return the mark of an event with these stored labels; nothing if its tenant searches by none of them."""
    names = sorted(name for name in orjson.loads(str(labels)) if name in searchable) if searchable else ()
    return {MARK: ",".join(names)} if names else {}


def label_digest(name: str, value: str) -> str:
    """Return the beginning of the keys of a label's rows. Readers verify the label, so two labels may share it."""
    return digest(name, value)[:10].hex()


def digests_of(props: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Return the digests of an event's labels of these names; by default of those in its mark."""
    if "labels" not in props or (names is None and MARK not in props):
        return set()
    wanted = str(props[MARK]).split(",") if names is None else names
    return {label_digest(name, value) for name, value in orjson.loads(str(props["labels"])).items() if name in wanted}


def marked_digests(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the digests of the labels in the marks of some events."""
    return frozenset[str]().union(*(digests_of(props) for props in events if MARK in props))


def unmarked_digests(events: Iterable[Row], searchable: Collection[str]) -> frozenset[str]:
    """Return the digests of searchable labels of events without a mark: stored before the tenant declared the label, or before the process
    knew of it."""
    return frozenset[str]().union(*(digests_of(row.props, searchable) for row in events if MARK not in row.props))


def has_digest(props: Mapping[str, Any], wanted: str) -> bool:
    """Return True if an event has a label with the digest, and lives here: one that has moved on, or was redriven, counts as gone."""
    if "labels" not in props or props["state"] == "moved" or (props["state"] == "dead" and props.get("target")):
        return False
    return any(label_digest(name, value) == wanted for name, value in orjson.loads(str(props["labels"])).items())
