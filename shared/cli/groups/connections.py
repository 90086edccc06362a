"""`tocsin connections`: list the named connections."""

from __future__ import annotations

import typer

from ..commands import JsonOption
from ..help import add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "connections", connections)


def connections(json: JsonOption = False) -> None:
    """List the named connections: their addresses, and where their keys come from.

    A connection is an app's address and a reference to a key, under a name. The file is ~/.config/tocsin/profiles.toml, or the path in
    TOCSIN_PROFILES. No key is shown.

    Examples:
        tocsin connections
        tocsin connections --json
    """
    from ..connections import load_connections
    from ..terminal.documents import to_json
    from ..terminal.output import Screen

    found = load_connections()
    if json:
        for each in found.known.values():
            fields = {"name": each.name, "url": each.url, "tenant": each.tenant, "key": each.source, "default": each.name == found.default}
            typer.echo(to_json(fields))
        return
    screen = Screen()
    rows = [(each.name, each.url, each.tenant, each.source, "yes" if each.name == found.default else "") for each in found.known.values()]
    screen.table(("name", "url", "tenant", "key from", "default"), rows, empty=f"no connections: {found.path} does not exist or is empty")
    typer.echo(screen.text(), nl=False)
