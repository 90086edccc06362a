"""The trace of a history, line by line: virtual time, instance, effect, answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from shared.core.clock import Millis
from shared.storage.ports import Applied, Delete, Page, Row, WriteRefused

SHOWN = ["state", "holder", "epoch", "flag", "tries", "due", "next", "target", "target_due", "wake", "at", "id", "index", "accepted"]
"""Properties that a trace shows."""


class Entry(NamedTuple):
    """One line, kept raw: most are never read."""

    at: float
    who: str
    what: str
    subject: Any
    result: Any


class Trace:
    """The lines of one history."""

    def __init__(self, start: Millis) -> None:
        self.start = start
        self.lines: list[Entry] = []

    def texts(self) -> Iterator[str]:
        """The lines as text."""
        for at, who, what, subject, result in self.lines:
            yield f"{at:10.3f} {who:>5}  {what:<22} {_subject(subject)}{_result(result)}".rstrip()

    def digest(self) -> str:
        """A hash of all lines."""
        digest = hashlib.sha256()
        for line in self.texts():
            digest.update(line.encode())
        return digest.hexdigest()

    def about(self, words: list[str]) -> Iterator[str]:
        """The lines that hold any of `words`."""
        return (line for line in self.texts() if any(word in line for word in words))


def _subject(subject: Any) -> str:
    match subject:
        case None:
            return ""
        case (str(table), str(pk), ops) if isinstance(ops, list | tuple):
            return f"{_short(table)} {pk} " + "; ".join(_op(op) for op in ops)
        case tuple():
            return " ".join(_short(str(part)) for part in subject)
        case _:
            return str(subject)


def _short(text: str) -> str:
    return text.removeprefix("Tocsin").lower() if text.startswith("Tocsin") else text


def _op(op: Any) -> str:
    name = type(op).__name__.lower()
    tag = f" if {op.etag[2:]}" if hasattr(op, "etag") else ""
    return f"{name} {op.rk}{tag}" if isinstance(op, Delete) else f"{name} {op.rk}{_props(op.props)}{tag}"


def _props(props: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{name}={props[name]}" for name in SHOWN if name in props) + "}"


def _result(result: Any) -> str:
    match result:
        case None:
            return ""
        case Applied(etags):
            return f" -> {','.join(etag[2:] or '-' for etag in etags)}"
        case WriteRefused(at, reason):
            return f" -> refused at {at}: {reason}"
        case Row():
            return f" -> {_props(result.props)} {result.etag[2:]}"
        case Page(rows, _, _):
            return " -> " + ", ".join(f"{row.rk}{_props(row.props)} {row.etag[2:]}" for row in rows)
        case _:
            return f" -> {result}"
