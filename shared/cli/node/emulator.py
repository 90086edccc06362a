"""`tocsin imds-emulator`: emulate Azure's metadata service, to test a node's reaction to Scheduled Events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..help import add_command

_SPEED_HELP = "Factor by which the scenario's time runs faster, such as 60. With 0, only POST /clock moves the time."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "imds-emulator", emulate, no_args_is_help=True)


def emulate(
    scenario: Annotated[Path, typer.Option(help="Scenario file, TOML or YAML, such as freeze.toml.", show_default=False)],
    speed: Annotated[float, typer.Option(min=0, max=10_000, help=_SPEED_HELP)] = 1.0,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the first machine; the others follow. 0 chooses free ports.")
    ] = 8901,
    control_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the control API on 127.0.0.1. 0 chooses a free port.")
    ] = 8900,
    host: Annotated[str, typer.Option(help="Address that the machines' ports listen on.")] = "127.0.0.1",
    json: Annotated[bool, typer.Option("--json", help="Report events in lines of JSON.")] = False,
    until_over: Annotated[bool, typer.Option("--until-over", help="Exit when the scenario is over.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only read the scenario and report its faults.")] = False,
) -> None:
    """Emulate Azure's metadata service with Scheduled Events for any number of machines, from a scenario.

    Each machine has its own port: give an agent http://127.0.0.1:PORT instead of http://169.254.169.254.

    Examples:
        tocsin imds-emulator --scenario freeze.toml
        tocsin imds-emulator --scenario freeze.toml --speed 60 --until-over
    """
    try:
        from ...extras.emulator import BadScenario, load
        from ...extras.emulator.command import PlayOptions, play
    except ImportError as missing:
        raise CommandFailed(str(missing), advice="docs/reference/emulator.md explains the installation.") from None
    try:
        found = load(scenario)
    except BadScenario as wrong:
        raise CommandFailed(str(wrong), advice="docs/reference/emulator.md lists all keys of a scenario.", status=Exit.USAGE) from None
    if check:
        typer.echo(f"{scenario}: machines: {len(found.vms)}, steps: {len(found.steps)}")
        return
    if port and port + len(found.vms) > 65_536:
        title = f"{len(found.vms)} machines need ports from {port} on, but ports end at 65535"
        advice = f"Choose a port of at most {65_536 - len(found.vms)}, or 0 for free ports."
        raise CommandFailed(title, where="--port", advice=advice, status=Exit.USAGE)
    play(PlayOptions(found, speed, host, port, control_port, json, until_over))
