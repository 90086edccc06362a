"""`tocsin checkpoint`: run a program in a replica's checkpoint turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..connections import AllowPlainHttp, ConnectionName, KeyOption, Tenant, Url
from ..help import add_command


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True)
    group.callback()(_checkpoint)
    add_command(group, "run", run, notes=_CODES, no_args_is_help=True, context_settings={"allow_interspersed_args": False})
    app.add_typer(group, name="checkpoint")


def _checkpoint() -> None:
    """Run a program in checkpoint turns, so that one replica of a fleet at a time takes its checkpoint."""


_CODES = (
    "Exit codes: that of the command; 120 no turn came, 121 not published, 122 revoked, 123 promoted, 124 the turn's time was over, "
    "125 tocsin failed, 126 and 127 the command cannot be run or was not found, 128 + n ended by signal n, 2 wrong usage."
)
_STATUS_HELP = "Shell command that prints this replica's state as JSON: role, term, applied, lag, load."
_FOLDER_HELP = "Folder on a local disk that stores the last checkpoint over restarts, such as /var/lib/tocsin."
_GRACE_HELP = "Seconds between SIGTERM and SIGKILL. SIGKILL comes at the turn's limit."
_WAIT_HELP = "Seconds to wait for a turn, such as 3600. Default: wait without a limit."


def run(
    command: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.", show_default=False)],
    fleet: Annotated[str, typer.Option(help="Name of the fleet, such as web.", show_default=False)],
    node: Annotated[str, typer.Option(help="Name of this replica in the fleet, such as s7.", show_default=False)],
    profile: ConnectionName = "",
    url: Url = "",
    key: KeyOption = "",
    tenant: Tenant = None,
    allow_plain_http: AllowPlainHttp = False,
    status: Annotated[str | None, typer.Option(help=_STATUS_HELP)] = None,
    role: Annotated[Literal["primary", "secondary"], typer.Option(help="Role of this replica, without --status.")] = "secondary",
    folder: Annotated[Path | None, typer.Option(help=_FOLDER_HELP)] = None,
    grace: Annotated[float, typer.Option(min=0, max=30, help=_GRACE_HELP)] = 10.0,
    wait: Annotated[float | None, typer.Option(min=0, help=_WAIT_HELP)] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two runs of --status.")] = 2.0,
    loop: Annotated[bool, typer.Option("--loop", help="Take turn after turn until a signal ends the program.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Report on standard error in lines of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Report only failures.")] = False,
) -> None:
    """Wait for this replica's turn, run a command in it, and publish its checkpoint.

    The command's environment has TOCSIN_FLEET, TOCSIN_NODE, TOCSIN_EPOCH, TOCSIN_LIMIT (seconds) and TOCSIN_RESULT, the path of a file
    that it may write: {"sequence": 81231, "location": "...", "bytes": 5}. Without that file, the sequence is the one applied when the
    turn began (without --status, the turn's epoch), and the location is node:NODE.

    Examples:
        tocsin checkpoint run --fleet web --node s7 -- ./take-checkpoint
        tocsin checkpoint run --fleet web --node s7 --status ./status --loop -- ./take-checkpoint
    """
    import os

    from ..connections import resolve_connection
    from .checkpoint_run import CheckpointRun, run_turns

    app = resolve_connection(os.environ, profile=profile, url=url, key=key, tenant=tenant, allow_plain_http=allow_plain_http)
    plan = CheckpointRun(
        *(app, fleet, node, tuple(command), status, role, folder),
        grace=grace,
        wait=wait,
        every=every,
        loop=loop,
        json=json,
        quiet=quiet,
    )
    raise typer.Exit(run_turns(plan))
