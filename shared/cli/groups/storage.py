"""`tocsin storage`: the accounts, the change of sides of a mirrored pair, and the number of the stored forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..commands import Yes, add_commands
from ..session import CommandSession, api_path

_HELP = "Show the storage accounts, change the account that serves mirrored events, and show and raise the number of the stored forms."
_INCOMPLETE_HELP = "Take over even if the second account does not have a copy of everything yet."
_ACCOUNT_COLUMNS = ("account", "role", "answers")


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"show": show, "failover": failover, "failback": failback, "forms": forms, "raise-forms": raise_forms})
    app.add_typer(group, name="storage")


def show(session: CommandSession) -> None:
    """Show the storage accounts, and which account of a mirrored pair serves. Needs an admin key.

    Examples:
        tocsin storage show
    """
    _print_state(session, session.get(api_path("storage")))


def failover(
    session: CommandSession,
    incomplete: Annotated[bool, typer.Option("--incomplete", help=_INCOMPLETE_HELP)] = False,
    yes: Yes = False,
) -> None:
    """Let the second account of a mirrored pair take over.

    If an account does not answer, the output has the settings that keep a host running although the account refuses connections. They are
    worth their restart if it stays away for hours. Needs the admin key of the app's settings, which needs no storage.

    Examples:
        tocsin storage failover
    """
    session.confirm("Let the second account serve mirrored events", yes)
    body = {"to": "second", "incomplete": incomplete}
    _print_state(session, session.send("POST", api_path("storage", "failover"), body, repeatable=True))


def failback(session: CommandSession, yes: Yes = False) -> None:
    """Bring the first account of a mirrored pair up to date, and let it serve again. Needs an admin key.

    Remove the settings that `tocsin storage failover` has printed first: disabled functions deliver nothing.

    Examples:
        tocsin storage failback
    """
    session.confirm("Let the first account serve mirrored events again", yes)
    _print_state(session, session.send("POST", api_path("storage", "failback"), {}, repeatable=True))


def _print_state(session: CommandSession, found: Any) -> None:
    if session.json:
        session.emit(found)
        return
    screen = session.screen
    accounts = found["accounts"]
    screen.table(_ACCOUNT_COLUMNS, [(each["place"], each["role"], each["reachable"]) for each in accounts])
    if (mirror := found["mirror"]) is not None:
        screen.fields({name: mirror[name] for name in ("state", "active", "epoch", "serves_in_s", "lag_ms", "behind", "failback")})
    for account in accounts:
        # A former version of the app does not name them.
        if not account["reachable"] and (names := account.get("listeners")):
            screen.gap()
            for line in _keep_up(account["role"], names):
                screen.line(line)


def _keep_up(role: str, names: Sequence[str]) -> list[str]:
    """Return the lines that say how a process stays up although an account refuses connections."""
    settings = [f"AzureWebJobs.{name}.Disabled" for name in names]
    return [
        f"The {role} account does not answer. If it refuses connections, each process that polls its queues ends after 26 s.",
        "If it stays away for hours, set these (the app restarts):",
        f"  az functionapp config appsettings set -g RG -n APP --settings {' '.join(f'{name}=true' for name in settings)}",
        "As soon as it answers again, remove them:",
        f"  az functionapp config appsettings delete -g RG -n APP --setting-names {' '.join(settings)}",
    ]


def forms(session: CommandSession) -> None:
    """Show the number of the stored forms, and the one that the app's version knows. Needs an admin key.

    Examples:
        tocsin storage forms
    """
    session.print_document(session.get(api_path("storage", "forms")))


def raise_forms(
    session: CommandSession,
    to: Annotated[int, typer.Argument(metavar="NUMBER", help="Number of the deployed version.", show_default=False)],
    yes: Yes = False,
) -> None:
    """Raise the number of the stored forms, after the last process of the older version has ended. It cannot be lowered.

    From then on, an app of an older version serves reads only, as after a rollback. Needs an admin key.

    Examples:
        tocsin storage raise-forms 2
    """
    session.confirm(f"Raise the number of the stored forms to {to}; apps of older versions then serve reads only", yes)
    session.print_document(session.send("POST", api_path("storage", "forms", "raise"), {"to": to}, repeatable=True))
