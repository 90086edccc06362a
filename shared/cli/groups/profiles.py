"""`tocsin profiles`: the deprecated former name of `tocsin connections`."""

from __future__ import annotations

import typer

from ..commands import JsonOption
from ..help import add_command
from .connections import connections


def register(app: typer.Typer) -> None:
    """Add the command; the help of `tocsin` does not list it."""
    add_command(app, "profiles", profiles, hidden=True)


def profiles(json: JsonOption = False) -> None:
    """List the named connections. Use tocsin connections instead.

    Examples:
        tocsin connections
    """
    connections(json)
    typer.echo("tocsin: profiles is deprecated and will be removed in the next version; use tocsin connections", err=True)
