"""The facts about plays and mutants that certificates hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tests.proofs.facts import note

from .checking.checker import Report


def assert_caught(report: Report) -> str:
    """Return the violation that the hunt for a mutant has found, and note it. Fail when there is none."""
    assert report.violation is not None, str(report)
    note(verdict="caught", by=report.violation.partition(":")[0], steps=report.steps, states=report.states)
    return report.violation


def bounds(play: Any) -> str:
    """Return the numbers of a play by name, without zeros: "until=3 lost=1 a1.doing.beat=2"."""
    return " ".join(f"{name}={value:g}" for name, value in _numbers(play) if value)


def _numbers(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        yield prefix.removesuffix("."), value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _numbers(each, f"{name}.")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name), f"{prefix}{field.name}.")
    elif hasattr(value, "_asdict"):
        for name, each in value._asdict().items():
            yield from _numbers(each, f"{prefix}{name}.")
