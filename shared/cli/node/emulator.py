"""`tocsin imds-emulator`: rehearse what a node does about Scheduled Events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..exits import Exit
from ..failures import CommandFailed


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("imds-emulator", no_args_is_help=True)(emulate)


def emulate(
    scenario: Annotated[Path, typer.Option(help="The scenario's file, TOML or YAML.", show_default=False)],
    speed: Annotated[float, typer.Option(min=0, max=10_000, help="How much faster than told; 0: only POST /clock moves the time.")] = 1.0,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The first machine's port; the others follow. 0: free ones.")] = 8901,
    control_port: Annotated[int, typer.Option(min=0, max=65_535, help="The control API's port, on 127.0.0.1. 0: a free one.")] = 8900,
    host: Annotated[str, typer.Option(help="The address that the machines' ports listen on.")] = "127.0.0.1",
    json: Annotated[bool, typer.Option("--json", help="Tell what happens in lines of JSON.")] = False,
    until_over: Annotated[bool, typer.Option("--until-over", help="End when the scenario has nothing more to come.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read the scenario.")] = False,
) -> None:
    """Play Azure's metadata service with Scheduled Events, for any number of machines, from a scenario.

    Each machine has a port of its own: give an agent http://127.0.0.1:PORT where it would ask http://169.254.169.254.
    """
    try:
        from ...extras.emulator import BadScenario, load
        from ...extras.emulator.command import Play, play
    except ImportError as missing:
        raise CommandFailed(str(missing), advice="docs/emulator.md says how.") from None
    try:
        found = load(scenario)
    except BadScenario as wrong:
        raise CommandFailed(str(wrong), advice="docs/emulator.md tells all keys.", status=Exit.USAGE) from None
    if check:
        typer.echo(f"{scenario}: machines: {len(found.vms)}, steps: {len(found.steps)}")
        return
    if port and port + len(found.vms) > 65_536:
        raise CommandFailed(f"{len(found.vms)} machines do not fit above port {port}", where="--port", status=Exit.USAGE)
    play(Play(found, speed, host, port, control_port, json, until_over))
