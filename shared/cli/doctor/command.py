"""`tocsin doctor`: lists what is wrong with a tenant, what that means, and the commands that correct it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

import typer

from ...core.clock import to_millis, to_text
from ..commands import add_commands
from ..exits import Exit
from ..failures import to_command_failure
from ..findings import Finding, print_findings
from ..groups.status import is_operator, readiness
from ..session import CommandSession, api_path

_MOST: Final = 1_000
"""Most dead events that are read, and most retried ones."""
_MOST_DELIVERED: Final = 200
"""Most delivered events of the last hour that are read."""
_MOST_SCHEDULES: Final = 10_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, {"doctor": doctor})


def doctor(session: CommandSession) -> None:
    """Examine a tenant: list what is wrong, what that means, and the commands to run next.

    With an admin key and without --tenant, it lists the tenants that need a person, the worst first.
    The exit code is 1 if a finding is bad.

    Examples:
        tocsin doctor --tenant shop
        tocsin doctor --tenant shop --json
    """
    findings, nothing = examine(session)
    print_findings(session, findings, nothing)
    if any(each.how == "bad" for each in findings):
        raise typer.Exit(Exit.FAILED)


def examine(session: CommandSession) -> tuple[list[Finding], str]:
    """Return the findings about the session's tenant, or about all tenants, and the text that says that there are none."""
    from .tenant import examine_all, examine_tenant

    if not session.app.tenant and is_operator(session):
        return examine_all(list(session.items("tenant-overview"))), "no tenant needs a person"
    report = read_report(session)
    return examine_tenant(report), f"nothing is wrong with {report.name}"


def present() -> datetime:
    """Return the present time of this machine. A difference of minutes from the service's clock does not matter here."""
    return datetime.now(UTC)


def read_report(session: CommandSession) -> Any:
    """Return the parts of a tenant that the key may see."""
    from ...client.errors import Refused
    from .tenant import TenantReport

    denied: dict[str, str] = {}

    def look(part: str, read: Any) -> Any:
        try:
            return read()
        except Refused as refused:
            # Other refusals, such as that of a missing tenant, concern the whole report.
            if refused.status != HTTPStatus.FORBIDDEN:
                raise
            denied[part] = to_command_failure(refused).title
            return None

    name = session.app.tenant or session.get("key")["tenant"]
    now = present()
    day, hour, soon = (to_text(to_millis(now + timedelta(minutes=minutes))) for minutes in (-1440, -60, 1))
    stats = look("events", lambda: session.get("stats"))
    return TenantReport(
        name=name,
        option=("--tenant", name) if session.app.tenant else (),
        now=now,
        health=readiness(session),
        denied=denied,
        stats=stats,
        dead=list(session.items("dead-letters", from_=day, to=soon, limit=_MOST)) if stats and stats["dead"] else [],
        retrying=list(session.items("events", state="retrying", from_=day, to=soon, limit=_MOST)) if stats and stats["retrying"] else [],
        delivered=list(session.items("events", state="delivered", from_=hour, to=soon, limit=_MOST_DELIVERED)) if stats else [],
        schedules=list(session.items("schedules", limit=_MOST_SCHEDULES)) if stats else [],
        fleets=look("fleets", lambda: list(session.items("fleet-overview"))) or [],
        tenant=look("limits and notices", lambda: session.get(api_path("tenants", name))),
        channels=look("channels", lambda: list(session.items(api_path("tenants", name, "channels")))),
        keys=look("keys", lambda: list(session.items(api_path("tenants", name, "keys")))),
    )
