"""The `tocsin` command."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from ..core.errors import TocsinError
from .exits import SIGNALLED, Exit
from .failures import CommandFailed, explained

GROUPS: Final = {
    "status": "groups.status",
    "events": "groups.events",
    "schedules": "groups.schedules",
    "tenants": "groups.tenants",
    "leases": "groups.leases",
    "turns": "groups.turns",
    "maintenance": "groups.maintenance",
    "agent": "node.agent",
    "checkpoint": "node.checkpoint",
    "imds-emulator": "node.emulator",
    "profiles": "groups.profiles",
    "completion": "groups.completion",
}
"""Word of the command line: module of this package, which has `register(app)`."""


def build(words: Sequence[str]) -> typer.Typer:
    """The command with the group that `words` name; with all groups where they name none, for help and for what is misspelt."""
    # Never with local variables: they hold keys.
    settings = {"help_option_names": ["-h", "--help"]}
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, context_settings=settings)
    app.callback()(_tocsin)
    first = next((word for word in words if not word.startswith("-")), "")
    for module in [GROUPS[first]] if first in GROUPS else GROUPS.values():
        import_module(f".{module}", __package__).register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("tocsin")
        except PackageNotFoundError:
            found = "0"
        typer.echo(f"tocsin {found}")
        raise typer.Exit()


def _tocsin(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    """Timed events, leases, checkpoint turns and maintenance for fleets on Azure."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code of `exits`. words: without the program's name; None: those of this process."""
    given = list(sys.argv[1:] if words is None else words)
    if "_TOCSIN_COMPLETE" in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
    _streams()
    try:
        build(given)(args=given, prog_name="tocsin")
    except TocsinError as error:
        failed = explained(error)
        print(failed.text(), file=sys.stderr)
        sys.exit(failed.status)
    except KeyboardInterrupt:
        sys.exit(SIGNALLED + 2)
    except BrokenPipeError:
        # Whoever read has gone, as `head` does.
        _unheard()
        sys.exit(Exit.FAILED)
    except OSError as error:
        print(CommandFailed(f"it cannot be done: {error.strerror or error}", where=str(error.filename or "")).text(), file=sys.stderr)
        _unheard()
        sys.exit(Exit.FAILED)


def _streams() -> None:
    """Standard output and standard error that take whatever is told; standard input that is there."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # A shell closed it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        elif isinstance(stream, io.TextIOWrapper):
            # Where a terminal's character set lacks a sign, it is spelt out.
            stream.reconfigure(errors="backslashreplace")


def _unheard() -> None:
    # Else what is left to write would fail once more, at the exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
