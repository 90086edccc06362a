"""Every kind of row survives a restart of an emulator that keeps its data on disk.

Azurite's store writes null for properties of some names, wherever they stand: its database (LokiJS) takes them for its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from devhost.azurite import Azurite
from devhost.conformance.access import StorageAccess
from shared.storage.ports import Props, Upsert
from tests.unit.stored_rows.cases import cases

TABLE = "Restarted"


async def read_back(folder: Path, rows: dict[str, Props]) -> dict[str, Props]:
    """Store the rows, restart the emulator, and return what it has of them."""
    with Azurite(location=folder) as emulator:
        tables = StorageAccess(connection=emulator.connection_string).tables()
        await tables.ensure([TABLE])
        for rk, props in rows.items():
            await tables.write(TABLE, "p", (Upsert(rk, props),))
        await tables.close()
    with Azurite(location=folder) as emulator:
        tables = StorageAccess(connection=emulator.connection_string).tables()
        found = {rk: await tables.get(TABLE, "p", rk) for rk in rows}
        await tables.close()
    return {rk: dict(row.props) for rk, row in found.items() if row is not None}


async def test_every_kind_of_row_survives_a_restart(tmp_path: Path) -> None:
    rows = {f"r{number:03}": case.encode(case.value) for number, case in enumerate(cases())}
    assert len(rows) > 100
    assert await read_back(tmp_path, rows) == {rk: dict(props) for rk, props in rows.items()}


@pytest.mark.parametrize("name", ["ttl", "constraints", "autosaveHandle", "persistenceAdapter"])
async def test_names_that_the_emulator_loses_are_those_that_no_row_uses(tmp_path: Path, name: str) -> None:
    assert name not in (await read_back(tmp_path, {"r": {name: 30_000, "kept": 1}}))["r"]
    assert not [case.name for case in cases() if name in case.encode(case.value)]
