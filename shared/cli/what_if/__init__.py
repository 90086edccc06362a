"""`tocsin what-if`: export a snapshot of the app, and run a twin of it with a change and without."""

from __future__ import annotations

import typer

from ..commands import add_commands
from ..help import add_command
from .export import export
from .run import run

_HELP = "Predict the effect of a change: export what is planned, and play it on virtual time with the change and without it."


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"export": export})
    add_command(group, "run", run, no_args_is_help=True)
    app.add_typer(group, name="what-if")
