"""The parts of the shard protocol's world: effects beside production's own, actors, faults that are left, states, plays."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from shared.engine.effects import Get, Load, Write
from shared.scheduler import timings
from shared.storage.ports import Row

type Cell = tuple[str, str, str]
type Found = tuple[int, tuple[tuple[str, Any], ...] | None]
type Store = frozenset[tuple[Cell, int, tuple[tuple[str, Any], ...] | None]]
ABSENT: Found = (0, None)
LIVE = frozenset({"scheduled", "firing", "retrying"})


class Now(NamedTuple):
    """Read the clock."""


class Told(NamedTuple):
    """Acknowledge facts to the caller, and go on."""

    facts: tuple[tuple[str, Any], ...]


class Until(NamedTuple):
    """Wait for the clock to reach `at`."""

    at: int


class Start(NamedTuple):
    """Start a delivery the owner believes it may start, not before `due`; resumed with True when the target took it."""

    shard: str
    row: str
    event: str
    due: int


class HasEnded(NamedTuple):
    """Judge a process by the identity in a gate: resumed with True if its owner runs no more. Each owner has a process of its own here."""

    process: str


class Sweep(NamedTuple):
    """Read the whole index; resumed with a list of rows."""


class Actor(NamedTuple):
    name: str
    kind: str
    machine: int


class Budget(NamedTuple):
    """The faults and the spontaneous starts that are left."""

    lost: int = 0
    crash: int = 0
    double: int = 0
    drop: int = 0
    suspect: int = 0
    fail: int = 0
    later: int = 0
    owners: int = 2
    sweeps: int = 1


SPENT = Budget(owners=0, sweeps=0)


class State(NamedTuple):
    now: int
    store: Store
    actors: tuple[Actor, ...]
    messages: frozenset[str]
    limbo: frozenset[tuple[str, Hashable]]
    """Requests under way whose answer no actor awaits: the sender and the frozen write of each."""
    acked: frozenset[tuple[str, Any]]
    owners: int
    budget: Budget


@dataclass(slots=True)
class Play:
    """A play: its actors and faults. `starts`: actor name -> (kind, generator maker, guard on the acknowledgements)."""

    name: str
    budget: Budget
    starts: dict[str, tuple[str, Callable[[], Any], Callable[[frozenset[tuple[str, Any]]], bool]]]
    owner: Callable[[str, str], Any]
    sweep: Callable[[int], Any]
    times: tuple[int, ...] = (0, 10_000)
    symmetry: tuple[dict[str, str], ...] = ()
    stored: Store = frozenset()
    due: dict[str, frozenset[int]] = field(default_factory=dict)
    """Times at which each event may legitimately fire; an acknowledged move leaves only the new one."""
    live_limit: int = 1
    sweeps_at_once: int = 1
    owners_keep: bool = False
    """An owner that runs never loses its gate to another one."""
    held: int = 0
    """Time until which the channel takes no event."""
    ends: bool = False
    """Totals are compared with the rows at every instant (P11)."""
    direct: bool = True
    """Owners are started from index rows at any time, as by messages that were delayed and doubled at will; no sweep, no queue. With
    False the sweep and its messages are played out."""


@cache
def spent(budget: Budget, what: str) -> Budget:
    return budget._replace(**{what: getattr(budget, what) - 1})


def row_of(cell: Cell, found: Found, old: bool) -> Row:
    age = timings.OWNER_SILENT if old else 0
    return Row(cell[1], cell[2], dict(found[1] or ()), str(found[0]), 0, age)


def renamed(mapping: dict[str, str], value: Any) -> Any:
    """The value with other names in it."""
    if isinstance(value, str):
        return mapping.get(value, value)
    if not isinstance(value, tuple | frozenset):
        return value
    parts = [renamed(mapping, item) for item in value]
    return frozenset(parts) if isinstance(value, frozenset) else tuple(parts)


def describe(effect: Any) -> str:
    """A readable line for traces."""
    if isinstance(effect, Write):
        parts = []
        for op in effect.ops:
            props = getattr(op, "props", {})
            what = ",".join(str(props[name]) for name in ("state", "holder", "epoch", "at", "target") if name in props)
            parts.append(f"{type(op).__name__.lower()} {op.rk}({what})" + (f"@{op.etag}" if getattr(op, "etag", "") else ""))
        return f"[{effect.pk}] " + " + ".join(parts)
    if isinstance(effect, Get | Load):
        return f"[{effect.pk}] {effect[2]}"
    return type(effect).__name__.lower()


def summary(state: State) -> str:
    rows = sorted((cell, dict(props)) for cell, _, props in state.store if props is not None)
    return "; ".join(f"{cell[1]}/{cell[2]}={props.get('state', props.get('at', ''))}" for cell, props in rows)
