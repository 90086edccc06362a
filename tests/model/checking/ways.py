"""The ways to the states in which mutants break their protocols, so that a test need not look for them in all that can be reached.

`python -m tests.model --ways FILE` hunts every mutant, and writes the shortest way to each violation: a mark for each step's label.
`ways.json` holds them. A test follows the way in the mutant's play: the model makes the same steps and the same checks as in a hunt. Where
a way leads nowhere any more, because the protocol has changed, the mutant is hunted. The tests that are marked long hunt all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, Final

from .checker import Model, Report, Violation

DIGITS = 6
"""Length of a mark, the beginning of a label's SHA-256. Labels with equal marks are all followed."""
FOLLOWED: Final = ("shard", "pair", "lease", "resize", "remote", "agent", "guard", "turns")
"""Protocols whose mutants have ways. The others' mutants lead to endless runs, or are found at once."""
WAYS: Final[dict[str, str]] = json.loads((Path(__file__).parent / "ways.json").read_text())


def mark(label: str) -> str:
    """Return the mark of a step's label, without the numbers that tell copies of a request apart: states are equal whichever copy it is."""
    return hashlib.sha256(re.sub(r"#-?\d+", "#", label).encode()).hexdigest()[:DIGITS]


def marks(report: Report) -> str:
    """Return the marks of the steps to a violation."""
    return " ".join(mark(label) for label in report.trace[: report.steps])


def follow[S](model: Model[S], way: Sequence[str]) -> Report:
    """Take the steps with these marks, and check each state. The report has no violation if the way leads to none."""
    report, start = Report(), model.initial()
    states: dict[Hashable, S] = {model.key(start): start}
    trace: list[str] = []
    for wanted in (*way, None):
        after: dict[Hashable, S] = {}
        report.states, report.depth = report.states + len(states), len(trace)
        for state in states.values():
            try:
                model.check(state)
            except Violation as found:
                report.violation, report.trace = str(found), [*trace, *found.steps]
                return report
        step = ""
        for state in states.values():
            for label, make in model.successors(state):
                if wanted is None or mark(label) != wanted:
                    continue
                step = label
                try:
                    made = make()
                except Violation as found:
                    report.violation, report.trace = str(found), [*trace, label]
                    return report
                after[model.key(made)] = made
        trace.append(step)
        states = after
    return report


def catch(protocol: str, mutant: Any, hunt: Callable[..., Report]) -> Report:
    """Return the report of the mutant's violation: along its way if that still leads to one, else of a hunt."""
    way = WAYS.get(f"{protocol}: {mutant.name}")
    if way is not None:
        report = hunt(mutant, explore=lambda model, **_: follow(model, way.split()))
        if report.violation is not None:
            return report
    return hunt(mutant)
