"""Writes docs/reference/stored-rows.md from the kinds of rows that the rooms declare: `python -m devhost.pages.stored_rows`."""

from __future__ import annotations

from typing import Final

from shared.app import row_kinds as app
from shared.checkpoints import row_kinds as checkpoints
from shared.delivery.flow import row_kinds as flow
from shared.engine.row_kinds import StoredKind
from shared.extras import row_kinds as optional
from shared.extras.bigben import row_kinds as bigben
from shared.fleets import row_kinds as fleets
from shared.leases import row_kinds as leases
from shared.locks import row_kinds as locks
from shared.maintenance import row_kinds as maintenance
from shared.scheduler import row_kinds as scheduler
from shared.storage.names import ALL_TABLES
from shared.tenants import row_kinds as tenants

from .generated_blocks import REFERENCE

PAGE: Final = REFERENCE / "stored-rows.md"
_ROOMS: Final = (scheduler, bigben, tenants, flow, leases, fleets, checkpoints, locks, maintenance, app, optional)
KINDS: Final[tuple[StoredKind, ...]] = tuple(kind for room in _ROOMS for kind in room.KINDS)

_HEAD: Final = """# Stored rows

<!-- Generated from the code by `make reference`. -->

Every kind of row in the tables of the storage account: its keys, its meaning, its properties, and who removes it.
A part of a key in braces varies.
Whole numbers have the type Int64, also small ones; true and false are Boolean, fractions Double, and everything else is String.
Times are in milliseconds since 1970 unless a line says otherwise.

## Repair a row by hand

The service leaves a row that it cannot read as it is, and says so: alarm `unreadable`, log action `lease_rows_unreadable`.

1. Find the kind of the row below by its table and its keys.
2. Compare it with a neighbour of the same kind in the Storage browser of the Azure portal: names, types and formats of the properties.
3. Change only what is wrong, and keep the other properties.
4. Never lower an `epoch` or a `token`: a server that was told to stop could act again.
5. Delete a row only where this page says that it may be deleted by hand: a missing row is harder to mend than an unreadable one.

A `{shard}` is two hexadecimal digits, a name of 16 letters that begins with the shard's place, and the tenant, with `-` between.
A `{minute}` is `yyyymmddHHMM` in UTC, and `{hex}` is one hexadecimal digit.
"""


def page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for table in ALL_TABLES:
        kinds = [kind for kind in KINDS if kind.table == table]
        parts.append(f"## {table}\n\n{''.join(f'- [{kind.name}](#{anchor(kind)})\n' for kind in kinds)}")
        parts += [_section(kind) for kind in kinds]
    return "\n".join(parts)


def anchor(kind: StoredKind) -> str:
    """Return the anchor of a kind's heading."""
    return kind.name.replace(" ", "-").lower()


def _section(kind: StoredKind) -> str:
    code = kind.code
    lines = [
        f"### {kind.name}\n",
        kind.meaning + "\n",
        f"- PartitionKey: {_forms(kind.partition)}",
        f"- RowKey: {_forms(kind.row)}",
        f"- Code: `{code.__name__}` in `{code.__module__.replace('.', '/')}.py`",
        f"- Removed by: {kind.removed}\n",
    ]
    if kind.properties:
        lines += ["| property | meaning |", "| --- | --- |"]
        lines += [f"| `{name}` | {text} |" for name, text in kind.properties.items()]
    else:
        lines.append("It has no properties of its own.")
    return "\n".join(lines) + "\n"


def _forms(text: str) -> str:
    return " or ".join(f"`{form}`" for form in text.split(" or "))


if __name__ == "__main__":
    PAGE.write_text(page())
