"""The `tocsin` command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from ..core.errors import TocsinError
from .exits import SIGNALLED, Exit
from .failures import CommandFailed, to_command_failure

GROUPS: Final = {
    "dev": "dev",
    "status": "groups.status",
    "doctor": "doctor.command",
    "events": "events.command",
    "jobs": "events.jobs",
    "schedules": "groups.schedules",
    "heartbeat": "groups.heartbeat",
    "tenants": "groups.tenants",
    "leases": "fleets.leases",
    "turns": "fleets.turns",
    "locks": "groups.locks",
    "maintenance": "fleets.maintenance",
    "audit": "groups.audit",
    "storage": "groups.storage",
    "what-if": "what_if",
    "import": "foreign.command",
    "apply": "declared.apply",
    "export": "declared.export",
    "agent": "node.agent",
    "checkpoint": "node.checkpoint",
    "imds-emulator": "node.emulator",
    "connections": "groups.connections",
    "check-deployment": "deployment.command",
    "check-receiver": "receiver.command",
    "verify-trace": "groups.verify_trace",
    "completion": "groups.completion",
    "mcp": "assistant.command",
}
"""First argument of the command line: module of this package, which has `register(app)`."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the command with only the group that the arguments use, or with all groups for help and for misspelt names."""
    # Tracebacks never show local variables: they hold keys.
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, context_settings=settings)
    app.callback()(_tocsin)
    first = next((argument for argument in arguments if not argument.startswith("-")), "")
    for module in [GROUPS[first]] if first in GROUPS else GROUPS.values():
        import_module(f".{module}", __package__).register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from ..core.version import version

        typer.echo(f"tocsin {version()}")
        raise typer.Exit()


def _tocsin(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Manage timed events, leases, checkpoint turns and maintenance of fleets on Azure."""


def main(arguments: Sequence[str] | None = None, *, on_loaded: Callable[[], object] = lambda: None) -> None:
    """Run the command line and exit with a code of `exits`.

    arguments: without the program's name; None for those of this process. on_loaded: is called after the imports, before the command runs.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "_TOCSIN_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    _prepare_streams()
    try:
        command = build(given)
        on_loaded()
        command(args=given, prog_name="tocsin")
    except TocsinError as error:
        failed = to_command_failure(error)
        print(failed.text(), file=sys.stderr)
        sys.exit(failed.status)
    except KeyboardInterrupt:
        sys.exit(SIGNALLED + 2)
    except BrokenPipeError:
        # The reader of standard output has ended, as `head` does.
        _discard_stdout()
        sys.exit(Exit.FAILED)
    except OSError as error:
        print(CommandFailed(f"the operation failed: {error.strerror or error}", where=str(error.filename or "")).text(), file=sys.stderr)
        _discard_stdout()
        sys.exit(Exit.FAILED)


def _prepare_streams() -> None:
    """Make all three standard streams usable: open closed ones on the null device, and escape characters that the terminal lacks."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # A shell closed it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    # Otherwise the flush at exit would fail once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
