"""Every stored row is of exactly one declared kind, and the kind declares its properties (docs/reference/stored-rows.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest

from devhost.pages.stored_rows import KINDS, anchor
from shared.engine.row_kinds import StoredKind
from shared.leases.row_kinds import KINDS as OF_LEASES
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, FLEETS, LIMITS
from shared.storage.ports import Applied, Delete, Op, WriteRefused
from tests.simulation.__main__ import KINDS as PLAYS
from tests.simulation.checkpoints.history import simulate as simulate_checkpoints
from tests.simulation.history import simulate
from tests.simulation.leases.history import simulate as simulate_leases

from .cases import cases
from .golden import describe

KIND_OF_CASE: Final = {
    "ended fleet": "ended fleet",
    "turn": "ended turn",
    "turn with everything set": "ended turn",
    "group": "turn",
    "group with everything set": "turn",
    "ledger entry": "ledger row",
    "figures of channels": "ledger row",
    "key": "key",
    "reservations": "reservations",
    "alarms of maintenance": "alarms of maintenance",
    **dict.fromkeys(("monitors", "monitors with everything set"), "monitors"),
    **dict.fromkeys(("maintenance node", "maintenance node with everything set"), "node"),
    **dict.fromkeys(("story of an event", "story of a node with everything set"), "story"),
    **dict.fromkeys(
        (
            "maintenance event",
            "maintenance event with everything set",
            "maintenance event in several pieces",
            "maintenance event of wide characters in several pieces",
        ),
        "event of maintenance",
    ),
}
"""The kinds of cases whose properties other kinds have too."""
ELSEWHERE: Final = {
    "event": {
        "pauses",
        "collapse",
        "first",
        "since",
        "skipped",
        "notice",
        "free",
        "stale",
        "unreached",
        "flag",
        "answers",
        "former",
        "came",
        "redrive",
        "redrove",
        "job",
    }
    | {"received"},
    "id": {"before"},
    "answer": {"at", "head"},
    "ledger row": {"redriven"},
    "line": {"skips", "last_skip"},
    "schedule": {"calendar_days"},
    "calendar": {"uid", "days"},
    "pass over states": {"done", "phase", "place", "key"},
    "failback": {"epoch", "since"},
    "progress of a failback": {"phase", "shards", "copied", "failed", "at"},
    "uses of an id": {"generation"},
    "key": {"expires", "used"},
    "listed key": {"expires", "used"},
    "channel": {"ended_holds"},
    "audit record": {"at", "by", "tenant", "action", "path", "outcome", "status", "changes"},
    "rate": {"tat"},
    "position of a sweep": {"after"},
    "turn": {"closed"},
    "index entry of maintenance": {"fresh", "care"},
    "tick": {"at", "failed", "forms"},
}
"""Properties that neither a case nor one of the histories below stores."""
SAME: Final = {"tick of Kafka sources": "tick", "last turn of an ended fleet": "turn"}
"""Kinds whose rows are copies of another kind's, which the cases have."""

type StoredProps = dict[str, set[str]]


def kind_of(table: str, partition: str, row: str) -> StoredKind:
    """Return the kind of a row; fail unless there is exactly one."""
    found = [kind for kind in KINDS if kind.matches(table, partition, row)]
    assert len(found) == 1, f"{table}, {partition}, {row} is of the kinds {[kind.name for kind in found]}: declare one in a `row_kinds`"
    return found[0]


def check(kind: StoredKind, props: Mapping[str, object]) -> None:
    assert kind.undeclared(props) == [], f"kind {kind.name}: declare these properties"


def kind_of_case(name: str, props: Mapping[str, object]) -> StoredKind:
    """Return the kind of a golden case."""
    if name in KIND_OF_CASE:
        return next(kind for kind in KINDS if kind.name == KIND_OF_CASE[name])
    found = [kind for kind in KINDS if not kind.undeclared(props)]
    assert len(found) == 1, f"{name} has properties of the kinds {[kind.name for kind in found]}"
    return found[0]


@pytest.fixture(scope="module")
def stored() -> StoredProps:
    """Properties by kind that simulated histories and the golden cases store. Each row is checked as it is written."""
    found: StoredProps = defaultdict(set)
    write = MemoryTables.write

    async def checked(self: MemoryTables, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        for op in ops:
            # The servers of simulated fleets have a table of their own.
            if table in ALL_TABLES and not isinstance(op, Delete):
                kind = kind_of(table, pk, op.rk)
                check(kind, op.props)
                found[kind.name] |= op.props.keys()
        return await write(self, table, pk, ops)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryTables, "write", checked)
        # The rows of the facet that only tests have are declared nowhere.
        of_the_service = (play for name, play in PLAYS.items() if name != "facet")
        histories: list[Any] = [simulate, simulate_leases, partial(simulate_checkpoints, hours=1.0), *of_the_service]
        for play in histories:
            # Two of each: in one history alone, no shard happens to rest, or no event has a callback.
            play(0)
            play(3)
    for case in cases():
        props = case.encode(case.value)
        found[kind_of_case(case.name, props).name] |= props.keys()
    for row in describe()["tenants"]:
        found[kind_of("TocsinTenants", row["pk"], row["rk"]).name] |= row["props"].keys()
    return found


def test_rows_of_simulated_histories_are_of_declared_kinds(stored: StoredProps) -> None:
    assert {"gate", "event", "index row", "ledger row", "fence", "bulk job", "ticket", "server", "partition", "turn"} <= stored.keys()


def test_every_golden_case_is_of_exactly_one_declared_kind() -> None:
    for case in cases():
        props = case.encode(case.value)
        check(kind_of_case(case.name, props), props)
    assert KIND_OF_CASE.keys() <= {case.name for case in cases()}


def test_golden_rows_of_tenants_are_of_declared_kinds() -> None:
    for row in describe()["tenants"]:
        check(kind_of("TocsinTenants", row["pk"], row["rk"]), row["props"])


def test_every_declared_property_is_stored(stored: StoredProps) -> None:
    for kind in KINDS:
        unseen = {name for name in kind.properties if "{" not in name} - stored[SAME.get(kind.name, kind.name)]
        assert unseen <= ELSEWHERE.get(kind.name, set()), f"kind {kind.name}"
        assert ELSEWHERE.get(kind.name, set()) <= kind.properties.keys(), f"kind {kind.name}"


def test_every_table_has_kinds_and_names_are_unique() -> None:
    assert {kind.table for kind in KINDS} == set(ALL_TABLES)
    assert len({anchor(kind) for kind in KINDS}) == len(KINDS)


def test_a_row_of_no_declared_kind_and_an_undeclared_property_are_found() -> None:
    with pytest.raises(AssertionError, match="is of the kinds"):
        kind_of(FLEETS, "acme:f", "x:1")
    server = next(kind for kind in OF_LEASES if kind.name == "server")
    with pytest.raises(AssertionError, match="declare these properties"):
        check(server, {"state": "live", "colour": "red"})


def test_keys_match_by_their_varying_parts_and_all_of_their_forms() -> None:
    rate = next(kind for kind in KINDS if kind.name == "rate")
    assert rate.matches(LIMITS, "acme", "rate:events") and rate.matches(LIMITS, "acme", "rate:deliveries:c-1")
    assert not rate.matches(LIMITS, "acme", "rate:deliveries:") and not rate.matches(LIMITS, "acme:f", "rate:events")
