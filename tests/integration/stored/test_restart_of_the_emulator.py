"""Every kind of row survives a restart of an emulator that keeps its data on disk.

Azurite's store writes null for properties of some names, wherever they stand: its database (LokiJS) takes them for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from devhost.azurite import Azurite
from devhost.conformance.access import StorageAccess
from shared.core.errors import Unavailable
from shared.storage.ports import Props, Upsert
from tests.unit.stored_rows.cases import cases

TABLE = "Restarted"


LOST = frozenset(("ttl", "constraints", "autosaveHandle", "persistenceAdapter"))
"""Names of properties for which the emulator writes null. It then answers 500 to every reader of the row."""


async def store(folder: Path, rows: Mapping[str, Props]) -> None:
    """Store the rows in an emulator that keeps its data in the folder, and end it."""
    with Azurite(location=folder) as emulator:
        tables = StorageAccess(connection=emulator.connection_string).tables()
        await tables.ensure([TABLE])
        for rk, props in rows.items():
            await tables.write(TABLE, "p", (Upsert(rk, props),))
        await tables.close()


async def test_every_kind_of_row_survives_a_restart(tmp_path: Path) -> None:
    rows = {f"r{number:03}": case.encode(case.value) for number, case in enumerate(cases())}
    assert len(rows) > 100
    await store(tmp_path, rows)
    with Azurite(location=tmp_path) as emulator:
        tables = StorageAccess(connection=emulator.connection_string).tables()
        found = {rk: await tables.get(TABLE, "p", rk) for rk in rows}
        await tables.close()
    assert {rk: dict(row.props) for rk, row in found.items() if row is not None} == {rk: dict(props) for rk, props in rows.items()}


async def test_names_that_the_emulator_loses_are_those_that_no_row_uses(tmp_path: Path) -> None:
    assert [case.name for case in cases() if LOST & case.encode(case.value).keys()] == []
    await store(tmp_path, {name: {name: 30_000} for name in LOST})
    with Azurite(location=tmp_path) as emulator:
        tables = StorageAccess(connection=emulator.connection_string).tables()
        for name in LOST:
            with pytest.raises(Unavailable):
                await tables.get(TABLE, "p", name)
        await tables.close()
