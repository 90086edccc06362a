"""Describes the stored form of all cases as JSON, which `rows.json` holds. `python -m tests.unit.stored_rows.golden` writes that file."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

from shared.core.clock import SettableClock
from shared.core.settings import Settings
from shared.delivery.channels.model import HttpChannel
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, TENANTS
from shared.storage.ports import Props, Row
from shared.tenants.model import KeyIn, Tenant
from shared.tenants.store import TenantDirectory
from tests.paths import ROOT

from .case import NOW, Case
from .cases import cases

FILE = ROOT / "tests" / "unit" / "stored_rows" / "rows.json"
LONG = 300
"""Characters from which the golden file holds a hash of a text in place of the text."""


def describe() -> dict[str, Any]:
    """Return the stored form of every case, and the rows of one tenant with keys and a channel."""
    return {"values": {case.name: _described(case) for case in cases()}, "tenants": asyncio.run(_tenants())}


def as_text(described: dict[str, Any]) -> str:
    """Return the text of the golden file: it tells 1 from 1.0 and true."""
    return json.dumps(described, indent=1, sort_keys=True) + "\n"


def _described(case: Case) -> dict[str, Any]:
    props = case.encode(case.value)
    found: dict[str, Any] = {"props": _short(props)}
    if case.parse is None:
        return found
    found["parsed_is_same"] = case.encode(case.parse(dict(props))) == props
    found["with_an_unknown_property"] = _changes(case, props, {**props, "later": "x"})
    for name in props:
        without = {other: value for other, value in props.items() if other != name}
        found.setdefault("without", {})[name] = _changes(case, props, without)
        found.setdefault("with_text", {})[name] = _changes(case, props, {**props, name: "x"})
        found.setdefault("with_a_fraction", {})[name] = _changes(case, props, {**props, name: 1.5})
    return found


def _changes(case: Case, props: Props, edited: Props) -> Any:
    """Return the properties that differ once the edited row was parsed and encoded, or that the row cannot be read."""
    assert case.parse is not None
    try:
        again = case.encode(case.parse(dict(edited)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return "cannot be read"
    # Compared as text, which tells 1 from 1.0 and true.
    return _short({name: value for name, value in again.items() if name not in props or json.dumps(value) != json.dumps(props[name])})


def _short(props: Props) -> dict[str, Any]:
    return {name: _shortened(value) for name, value in props.items()}


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONG:
        return {"characters": len(value), "sha256": hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()}
    return value


class _Tables(MemoryTables):
    def dump(self, table: str) -> list[Row]:
        """Return all rows of the table in key order."""
        found = self._table(table)
        return [Row(pk, rk, found[pk].rows[rk].props, "", 0, 0) for pk in sorted(found) for rk in sorted(found[pk].rows)]


async def _tenants() -> list[dict[str, Any]]:
    clock = SettableClock(NOW)
    tables = _Tables(clock)
    await tables.ensure(ALL_TABLES)
    settings = Settings(
        storage="UseDevelopmentStorage=true",
        admin_key="local-admin-key",
        signing_key="local-signing-key",
        local=True,
        egress_allow="localhost",
    )
    directory = TenantDirectory(tables, clock, settings, entropy=_counting())
    await directory.put("acme", Tenant())
    await directory.put("acme", Tenant.model_validate({"durability": "fast"}))
    await directory.keys.issue("acme", KeyIn(scopes=["events", "fleets"], note="a note"))
    await directory.keys.issue("acme", KeyIn(scopes=["agent"], fleet="f", node="n1"))
    await directory.channels.put("acme", "c", HttpChannel(type="http", url="http://localhost/x"))
    await directory.channels.rotate("acme", "c", "named")
    await directory.channels.pause("acme", "c", True, "why")
    await directory.put("gone", Tenant())
    await directory.delete("gone")
    return [{"pk": row.pk, "rk": row.rk, "props": _short(row.props)} for row in tables.dump(TENANTS)]


def _counting() -> Callable[[int], bytes]:
    calls = iter(range(1, 256))

    def entropy(size: int) -> bytes:
        return bytes([next(calls)]) * size

    return entropy


if __name__ == "__main__":
    FILE.write_text(as_text(describe()))
