"""`tocsin audit`: the record of administrative calls. Needs an admin key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..commands import add_commands
from ..session import CommandSession
from ..terminal.output import printable
from ..terminal.times import time_option

_WIDE = 3
"""Changes that a line of the table names; `--json` shows all."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"audit": audit}, tenant=False)


def audit(
    session: CommandSession,
    tenant: Annotated[str | None, typer.Option("--of", metavar="TENANT", help="Only calls about this tenant.")] = None,
    by: Annotated[str | None, typer.Option(metavar="PREFIX", help="Only calls with this key, such as tsn_3ijpvmo2.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as channels_put.")] = None,
    since: Annotated[str | None, time_option("From this time on, such as 2026-11-21T10:00:00Z.", "--from")] = None,
    until: Annotated[str | None, time_option("Up to this time.", "--to")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Largest number of calls to list.")] = 50,
) -> None:
    """List administrative calls, the newest first: who changed what, from what to what. They are kept for a year.

    Examples:
        tocsin audit
        tocsin audit --of shop --from 2026-11-01T00:00:00Z
        tocsin audit --by tsn_3ijpvmo2 --action channels_put --json
    """
    found = session.items("audit", limit=limit, tenant=tenant, by=by, action=action, from_=since, to=until)
    columns = ("at", "by", "action", "tenant", "outcome", "changes")
    session.print_list(found, columns, _row, empty="no administrative calls")


def _row(record: dict[str, Any]) -> Sequence[Any]:
    changes = [_change(each) for each in record["changes"]]
    more = f", and {len(changes) - _WIDE} more" if len(changes) > _WIDE else ""
    outcome = record["outcome"] if record["outcome"] != "refused" else f"refused ({record['status']})"
    return record["at"], record["by"], record["action"], record.get("tenant"), outcome, ", ".join(changes[:_WIDE]) + more


def _change(change: dict[str, Any]) -> str:
    return printable(f"{change['field']}: {change.get('before', 'none')} -> {change.get('after', 'none')}")
