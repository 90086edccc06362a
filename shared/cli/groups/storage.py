"""`tocsin storage`: the number of the stored forms."""

from __future__ import annotations

from typing import Annotated

import typer

from ..commands import Yes, add_commands
from ..session import CommandSession, api_path

_HELP = "Show and raise the number of the stored forms, which says which versions of the app may work."


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"forms": forms, "raise-forms": raise_forms})
    app.add_typer(group, name="storage")


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
