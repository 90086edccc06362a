"""`tocsin profiles`: the deployments that have a name."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("profiles")(profiles)


def profiles(json: Annotated[bool, typer.Option("--json", help="For programs: JSON, one document a line.")] = False) -> None:
    """The deployments of the profiles file: their addresses, and where their keys come from."""
    from ..connections import load
    from ..terminal.documents import to_json
    from ..terminal.output import Screen

    found = load()
    if json:
        for each in found.known.values():
            told = {"name": each.name, "url": each.url, "tenant": each.tenant, "key": each.source, "default": each.name == found.default}
            typer.echo(to_json(told))
        return
    screen = Screen()
    rows = [(each.name, each.url, each.tenant, each.source, "yes" if each.name == found.default else "") for each in found.known.values()]
    screen.table(("name", "url", "tenant", "key from", "default"), rows, empty=f"no profiles: there is no {found.path}, or it is empty")
    typer.echo(screen.text(), nl=False)
