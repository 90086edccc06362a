"""The stored states that a play reaches, as a count and one hash.

A state of the checker holds stored rows and the machines that work on them. The number of machine states depends on how machines are
compared; the set of stored states depends on the protocol alone. Two versions of the protocols' code that reach the same set store the
same rows in the same situations. `python -m tests.model --stored-states FOLDER` writes count and hash of each play, a file a protocol;
the folder `stored_states` holds those of the plays that are explored in tests and proofs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable
from enum import Enum
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.proofs.facts import note

from .checking.checker import Report, explore
from .checking.state import renamed
from .proving import bounds


class StoredStates:
    """A model that records what is stored in each state it is asked to check. It answers as the model it wraps."""

    def __init__(self, model: Any, project: Callable[[Any, Any], Hashable]) -> None:
        self._model, self._project = model, project
        self._seen: set[Hashable] = set()
        self.initial, self.successors, self.key = model.initial, model.successors, model.key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def check(self, state: Any) -> None:
        self._seen.add(self._project(self._model, state))
        self._model.check(state)

    def result(self) -> dict[str, Any]:
        """Return the number of stored states and the SHA-256 of their sorted list."""
        texts = sorted({canonical(self._model, each) for each in self._seen})
        return {"stored": len(texts), "sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest()}


def canonical(model: Any, stored: Hashable) -> str:
    """Return one text for a stored state: the least of those under the play's symmetric names."""
    play = getattr(model, "play", None)
    return min(text(renamed(mapping, stored)) for mapping in ({}, *getattr(play, "symmetry", ())))


def text(value: Any) -> str:
    """Return a text that does not depend on the order of sets and dictionaries."""
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{text(key)}:{text(item)}" for key, item in value.items())) + "}"
    if isinstance(value, frozenset | set):
        return "<" + ",".join(sorted(text(item) for item in value)) + ">"
    if isinstance(value, tuple | list):
        return "(" + ",".join(text(item) for item in value) + ")"
    return repr(value.value if isinstance(value, Enum) else value)


def _table(model: Any, state: Any) -> Hashable:
    return state.store


def _turns(model: Any, state: Any) -> Hashable:
    return tuple((rk, tuple(sorted(row.props().items()))) for rk, row in sorted(model.rows(state).items()))


def _agent(model: Any, state: Any) -> Hashable:
    """The state file, without times, counts and sentences."""
    own, _, records, *_ = model.key(state)
    return own, records


def _guard(model: Any, state: Any) -> Hashable:
    """The app's rows and the moment, without times and texts."""
    # Here, so that a proof of another protocol does not depend on the guard's modules.
    from .guard.world import stored

    return stored(state)


def _checkpoint_design(model: Any, state: Any) -> Hashable:
    """Logs, payloads and the checkpoint in cloud storage, under the least of the nodes' interchangeable names."""
    # Here, so that a proof of another protocol does not depend on the design's modules.
    from .checkpoint_design.world import NOBODY

    nodes, last = state.cluster.nodes, state.cluster.checkpoint
    size = len(nodes)
    images = []
    for names in permutations(range(size)):
        other = {NOBODY: NOBODY, **dict(enumerate(names))}
        logs = sorted((other[at], tuple(other[holder] for holder in node.log), node.payload) for at, node in enumerate(nodes))
        images.append((tuple(logs), tuple(other[holder] for holder in last)))
    return min(images)


def _endless(model: Any, state: Any) -> Hashable:
    """Rows with times relative to now: time has no end here."""
    return model.key(state)[1]


PROJECTIONS: dict[str, Callable[[Any, Any], Hashable]] = {
    "shard": _table,
    "facet": _table,
    "change": _table,
    "pair": _table,
    "key": _table,
    "notice": _table,
    "skip": _table,
    "lease": _table,
    "lock": lambda model, state: state.row and state.row[0],
    "rollback": _table,
    "resize": _table,
    "remote": _table,
    "agent": _agent,
    "guard": _guard,
    "checkpoint-design": _checkpoint_design,
    "endless design": lambda model, watched: _checkpoint_design(model, watched.state) if watched.state else None,
    "approval": lambda model, state: model.key(state)[1],
    "turns": _turns,
    "endless turns": _endless,
    "wake": lambda model, state: (state.plan, state.index),
}
"""By protocol: the part of a state that outlives every process."""

FOLDER = Path(__file__).parent / "stored_states"


def golden(protocol: str) -> dict[str, dict[str, Any]]:
    """Return count and hash of the stored states of a protocol's plays, by play."""
    found: dict[str, dict[str, Any]] = json.loads(file_of(FOLDER, protocol).read_text())
    return found


def file_of(folder: Path, protocol: str) -> Path:
    """Return the file of a protocol: one for each, so that a proof does not depend on other protocols' states."""
    return folder / f"{protocol.replace(' ', '-')}.json"


def write_golden(folder: Path, protocol: str, found: dict[str, dict[str, Any]]) -> None:
    """Write count and hash of each play, a line for each."""
    lines = ",\n".join(f" {json.dumps(play)}: {json.dumps(each)}" for play, each in found.items())
    folder.mkdir(parents=True, exist_ok=True)
    file_of(folder, protocol).write_text(f"{{\n{lines}\n}}\n")


def explore_recorded(protocol: str, play: str, model: Any, explore: Callable[[Any], Report] = explore) -> Report:
    """Explore a play, and note its figures. Raise AssertionError when it holds, but its stored states are not those of
    the folder `stored_states`."""
    recorded = StoredStates(model, PROJECTIONS[protocol])
    report = explore(recorded)
    note(states=report.states, depth=report.depth, bounds=bounds(getattr(model, "play", None)))
    if report.violation is None:
        assert recorded.result() == golden(protocol)[play], "other stored states than before"
    return report


def assert_play_holds(
    protocol: str, play: str, model: Any, explore: Callable[[Any], Report] = explore, *, more_states_than: int = 1_000
) -> None:
    """Explore a play with `explore_recorded`. Fail on a violation, and on a play that reaches too few states to prove anything."""
    report = explore_recorded(protocol, play, model, explore)
    assert report.violation is None, str(report)
    assert report.states > more_states_than
