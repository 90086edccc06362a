"""`tocsin checkpoint`: run a program in a replica's turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..connection_options import Key, ProfileName, Tenant, Url


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Checkpoint turns: one replica of a fleet at a time takes its checkpoint.")
    group.callback()(_checkpoint)
    group.command("run", no_args_is_help=True, epilog=_CODES, context_settings={"allow_interspersed_args": False})(run)
    app.add_typer(group, name="checkpoint")


def _checkpoint() -> None:
    """Checkpoint turns: one replica of a fleet at a time takes its checkpoint."""


_CODES = (
    "Exit codes: the command's own; 120 no turn came, 121 not published, 122 revoked, 123 promoted, 124 the turn's time was over, "
    "125 tocsin failed, 126 and 127 the command cannot be run or found, 128 + n ended by signal n, 2 wrong usage."
)


def run(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", show_default=False)],
    fleet: Annotated[str, typer.Option(help="The fleet.", show_default=False)],
    node: Annotated[str, typer.Option(help="This replica's name in it.", show_default=False)],
    profile: ProfileName = "",
    url: Url = "",
    key: Key = "",
    tenant: Tenant = None,
    status: Annotated[
        str | None, typer.Option(help="A shell command that prints how this replica stands, as JSON: role, term, applied, lag, load.")
    ] = None,
    role: Annotated[Literal["primary", "secondary"], typer.Option(help="Without --status: what this replica is.")] = "secondary",
    folder: Annotated[Path | None, typer.Option(help="Where to remember the last checkpoint over restarts, on a local disk.")] = None,
    grace: Annotated[
        float, typer.Option(min=0, max=30, help="Seconds between SIGTERM and SIGKILL; the latter comes at the turn's limit.")
    ] = 10.0,
    wait: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for a turn; without it as long as it takes.")] = None,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two runs of --status.")] = 2.0,
    loop: Annotated[bool, typer.Option("--loop", help="Turn after turn, until told to end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Tell what happens in lines of JSON, on standard error.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Tell only what goes wrong.")] = False,
) -> None:
    """Wait for this replica's turn, run a command in it, and publish its checkpoint.

    The command finds TOCSIN_FLEET, TOCSIN_NODE, TOCSIN_EPOCH, TOCSIN_LIMIT (seconds) and TOCSIN_RESULT: the path of a file it may write, as
    {"sequence": 81231, "location": "...", "bytes": 5}. Without it, the sequence is what was applied when the turn began (without
    --status the turn's epoch), and the location is node:NODE.
    """
    import os

    from ..connection_options import chosen
    from .checkpoint_run import Plan, run_turns

    app = chosen(os.environ, profile=profile, url=url, key=key, tenant=tenant)
    told = {"json": json, "quiet": quiet}
    plan = Plan(app, fleet, node, tuple(command), status, role, folder, grace=grace, wait=wait, every=every, loop=loop, **told)
    raise typer.Exit(run_turns(plan))
