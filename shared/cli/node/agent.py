"""`tocsin agent`: the agent of a node. Imports what it needs inside its functions, and little of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exits import Exit
from ..failures import CommandFailed

if TYPE_CHECKING:
    from ...maintenance.agent.config.config import Config
    from ...maintenance.agent.service import Agent

ADVICE = "Correct the file; `tocsin agent --config FILE --check` reads it and does nothing. docs/maintenance.md explains each setting."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("agent", no_args_is_help=True, epilog=_CODES)(run)


_CODES = (
    "Exit codes: 0 ended as told; 1 it cannot begin, or failed: start it again; 2 the file is wrong; 4 with --once: no document came. "
    "SIGTERM ends it: nothing is put back or approved, the next start goes on from there."
)


def run(
    config: Annotated[Path | None, typer.Option(help="The file of settings, TOML or YAML.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Look and decide, but run, approve, report and keep nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Look once, do what that asks for, and end.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Read the file, say what it amounts to, and end.")] = False,
    unit: Annotated[bool, typer.Option("--unit", help="Print a unit file for systemd, and end.")] = False,
    log: Annotated[Literal["text", "json"] | None, typer.Option(help="How log lines look; text at a terminal, else json.")] = None,
    json: Annotated[bool, typer.Option("--json", help="With --check: as JSON.")] = False,
) -> None:
    """Watch Azure's Scheduled Events on this machine: prepare for them, approve them, put the node back.

    Works alone; with an app in the file it reports there and takes part in the fleet. A key is in the file that app.key_file names, or in
    TOCSIN_KEY.
    """
    if unit:
        typer.echo(unit_file(config), nl=False)
        return
    if config is None:
        raise CommandFailed("no file of settings is named", where="--config", advice="Give --config FILE.", status=Exit.USAGE)
    settings = _load(config, dry_run=dry_run)
    if check:
        _check(config, settings, json)
        return
    raise typer.Exit(_work(settings, once=once, style=log or ""))


def unit_file(config: Path | None) -> str:
    """A unit that runs this very program."""
    import sys

    text = (Path(__file__).parents[2] / "maintenance" / "agent" / "hooks" / "recipes" / "tocsin-agent.service").read_text()
    program = f"{sys.executable} -m {__package__.removesuffix('.node')}"
    return text.replace("@PROGRAM@", program).replace("@CONFIG@", str((config or Path("/etc/tocsin/agent.toml")).absolute()))


def _load(path: Path, *, dry_run: bool) -> Config:
    from dataclasses import replace

    from ...maintenance.agent.config.config import BadConfig, load

    try:
        settings = load(path)
    except BadConfig as bad:
        title = "The file of settings cannot be used:" + "".join(f"\n    {fault}" for fault in bad.faults)
        raise CommandFailed(title, where=str(path), advice=ADVICE, status=Exit.USAGE) from None
    return replace(settings, settings=replace(settings.settings, dry_run=True)) if dry_run else settings


def _check(path: Path, config: Config, as_json: bool) -> None:
    import json

    from ...maintenance.agent.config.checking import list_doubts, summary

    told: dict[str, Any] = {**summary(config), "doubts": list_doubts(config)}
    if as_json:
        typer.echo(json.dumps({"file": str(path), **told}))
        return
    typer.echo(f"{path} can be used")
    for key, value in told.items():
        shown = "; ".join(value) if isinstance(value, list) else value
        if shown:
            typer.echo(f"  {key}: {shown}")


def _work(config: Config, *, once: bool, style: str) -> int:
    import logging
    import os
    import threading

    from ...maintenance.agent.logs import set_up
    from ...maintenance.agent.service import Agent, CannotStart

    set_up(style)

    def crash(thrown: threading.ExceptHookArgs) -> None:
        # Half an agent is worse than none: its keeper starts it anew, and the journal knows the rest.
        trace = (thrown.exc_type, thrown.exc_value or thrown.exc_type(), thrown.exc_traceback)
        logging.getLogger(__name__).critical("A part of the agent failed: it ends", exc_info=trace, extra={"action": "agent_failed"})
        os._exit(Exit.FAILED)

    threading.excepthook = crash
    agent = Agent(config, once=once)
    _obey_signals(agent)
    try:
        seen = agent.run()
    except CannotStart as refused:
        raise CommandFailed(str(refused), advice="Nothing was done. Correct it, and start the agent again.") from None
    return Exit.UNREACHABLE if once and not seen else Exit.OK


def _obey_signals(agent: Agent) -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
