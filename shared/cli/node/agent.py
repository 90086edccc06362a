"""`tocsin agent`: the maintenance agent of a node. Functions import what they need, to keep the process small."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..exits import Exit
from ..failures import CommandFailed
from ..help import add_command

if TYPE_CHECKING:
    from ...core.node_logs.outputs import LogOutputs
    from ...maintenance.agent.config.config import Config
    from ...maintenance.agent.service import Agent

LOG_ADVICE = "Correct the option or the environment variable. docs/how-to/node-logs.md shows examples."
ADVICE = "Correct the file, and check it with tocsin agent --config FILE --check. docs/reference/agent.md explains each setting."
_FORMAT_HELP = "Format of log lines on standard error: text or json. Default: text on a terminal, else json."
_OTLP_HELP = "Send log lines to this collector, too, such as https://collector.example:4318. Also: OTEL_EXPORTER_OTLP_ENDPOINT."
_JOURNALD_HELP = "Send log lines to journald with structured fields, instead of standard error. Also: TOCSIN_LOG_JOURNALD=true."
_SYSLOG_HELP = "Send log lines to syslog, too: udp://10.0.0.5:514 or unix:/dev/log. Also: TOCSIN_LOG_SYSLOG."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "agent", run, notes=_CODES, no_args_is_help=True)


_CODES = (
    "Exit codes: 0 ended by a signal or --once; 1 it could not start, or failed (start it again); 2 the file is wrong; "
    "4 with --once: the metadata service sent no document. SIGTERM ends the agent without restoring or approving anything; "
    "the next start continues from there."
)


def run(
    config: Annotated[
        Path | None, typer.Option(help="Settings file, TOML or YAML, such as /etc/tocsin/agent.toml.", show_default=False)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Observe and decide, but run, approve, report and store nothing.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Read the Scheduled Events once, act on them, and exit.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Read the settings file, print a summary, and exit.")] = False,
    unit: Annotated[bool, typer.Option("--unit", help="Print a systemd unit file for this program, and exit.")] = False,
    log: Annotated[Literal["text", "json"] | None, typer.Option(help=_FORMAT_HELP)] = None,
    otlp: Annotated[str, typer.Option(help=_OTLP_HELP, show_default=False)] = "",
    journald: Annotated[bool, typer.Option("--journald", help=_JOURNALD_HELP)] = False,
    syslog: Annotated[str, typer.Option(help=_SYSLOG_HELP, show_default=False)] = "",
    json: Annotated[bool, typer.Option("--json", help="With --check: print the summary as JSON.")] = False,
) -> None:
    """Watch Azure's Scheduled Events on this machine: prepare for them, approve them, and restore the node afterwards.

    The agent works alone. If the settings file names an app, it reports there and acts as part of the fleet. The key is read from the
    file that app.key_file names, or from TOCSIN_KEY.

    Examples:
        tocsin agent --config /etc/tocsin/agent.toml --check
        tocsin agent --config /etc/tocsin/agent.toml
        tocsin agent --config /etc/tocsin/agent.toml --journald --otlp https://collector.example:4318
    """
    if unit:
        typer.echo(unit_file(config), nl=False)
        return
    if config is None:
        advice = "For example: tocsin agent --config /etc/tocsin/agent.toml"
        raise CommandFailed("no settings file is given", where="--config", advice=advice, status=Exit.USAGE)
    settings = _load(config, dry_run=dry_run)
    if check:
        _check(config, settings, json)
        return
    raise typer.Exit(_run_agent(settings, _log_outputs(otlp, journald, syslog), once=once, style=log or ""))


def unit_file(config: Path | None) -> str:
    """Return the text of a systemd unit that runs this program."""
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
        title = "The settings file has faults:" + "".join(f"\n    {fault}" for fault in bad.faults)
        raise CommandFailed(title, where=str(path), advice=ADVICE, status=Exit.USAGE) from None
    return replace(settings, settings=replace(settings.settings, dry_run=True)) if dry_run else settings


def _check(path: Path, config: Config, as_json: bool) -> None:
    import json

    from ...maintenance.agent.config.checking import list_doubts, summary

    report: dict[str, Any] = {**summary(config), "doubts": list_doubts(config)}
    if as_json:
        typer.echo(json.dumps({"file": str(path), **report}))
        return
    typer.echo(f"{path} is valid")
    for key, value in report.items():
        text = "; ".join(value) if isinstance(value, list) else value
        if text:
            typer.echo(f"  {key}: {text}")


def _log_outputs(otlp: str, journald: bool, syslog: str) -> LogOutputs:
    import os

    from ...core.node_logs.outputs import BadOutput, read_outputs

    try:
        return read_outputs(os.environ, otlp=otlp, journald=journald, syslog=syslog)
    except BadOutput as bad:
        raise CommandFailed(str(bad), advice=LOG_ADVICE, status=Exit.USAGE) from None


def _run_agent(config: Config, outputs: LogOutputs, *, once: bool, style: str) -> int:
    import logging
    import os
    import sys
    import threading

    from ...core.node_logs.outputs import export_logs
    from ...maintenance.agent.observability.logs import set_up
    from ...maintenance.agent.observability.service_manager import ServiceManager
    from ...maintenance.agent.service import Agent, CannotStart

    root, printing = logging.getLogger(), set_up(style)
    if outputs.journald and not style and not sys.stderr.isatty():
        # Under systemd, lines on standard error go to the journal, too. They are kept for what journald does not accept.
        root.removeHandler(printing)
    app = config.app
    export = export_logs(
        node=config.node.name or config.node.vm or os.uname().nodename,
        fleet=config.settings.fleet,
        service="tocsin-agent",
        outputs=outputs,
        secrets=(app.key,) if app is not None else (),
        logger=root,
        fallback=None if printing in root.handlers else printing,
    )

    def crash(thrown: threading.ExceptHookArgs) -> None:
        # An agent that runs in part is worse than none. systemd starts it again, and its journal holds what it was doing.
        trace = (thrown.exc_type, thrown.exc_value or thrown.exc_type(), thrown.exc_traceback)
        message = "A thread of the agent failed; the process exits"
        logging.getLogger(__name__).critical(message, exc_info=trace, extra={"action": "agent_failed", **agent.about()})
        export.close()
        os._exit(Exit.FAILED)

    manager = ServiceManager.take_from(os.environ)
    agent = Agent(config, once=once, log_counts=lambda: export.counts, manager=manager)
    threading.excepthook = crash
    _obey_signals(agent)
    try:
        seen = agent.run()
    except CannotStart as refused:
        raise CommandFailed(str(refused), advice="Nothing was done. Correct the cause, then start the agent again.") from None
    finally:
        export.close()
    return Exit.UNREACHABLE if once and not seen else Exit.OK


def _obey_signals(agent: Agent) -> None:
    import signal

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
