"""`tocsin locks`: locks that one process holds at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ..commands import Note, add_commands
from ..connections import AllowPlainHttp, ConnectionName, KeyOption, Tenant, Url
from ..help import add_command
from ..session import CommandSession, api_path, without_fields
from ..terminal.output import duration_text
from ..terminal.times import duration_option

_HELP = "List, show, release and revoke locks, and run a program while a lock is held."
_CODES = (
    "Exit codes: that of the command; 120 another process held the lock, 124 the lock was lost and the command was ended, "
    "125 tocsin failed, 126 and 127 the command cannot be run or was not found, 128 + n ended by signal n, 2 wrong usage."
)
_GRACE_HELP = "Seconds between SIGTERM and SIGKILL, if the lock is lost; at most a quarter of --ttl."
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lock, such as nightly.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help=_HELP)
    add_commands(group, {"list": list_}, watch=True)
    add_commands(group, {"show": show, "release": release, "revoke": revoke})
    add_command(group, "run", run, notes=_CODES, no_args_is_help=True)
    app.add_typer(group, name="locks")


def list_(session: CommandSession) -> None:
    """List locks by name.

    Examples:
        tocsin locks list
        tocsin locks list --watch 5
    """
    columns = ("name", "state", "holder", "token", "renewed", "free at", "waiters", "note")
    session.print_list(session.items("locks"), columns, _row, empty="no locks")


def show(session: CommandSession, name: Name) -> None:
    """Show a lock with its holder and its waiters.

    Examples:
        tocsin locks show nightly
    """
    found = session.get(api_path("locks", name))
    if session.json:
        session.emit(found)
        return
    session.screen.fields(without_fields(found, "waiters"))
    rows = [(place, each["holder"], each["since"]) for place, each in enumerate(found["waiters"], 1)]
    session.screen.table(("place", "holder", "since"), rows, title="waiters")


def release(
    session: CommandSession,
    name: Name,
    token: Annotated[int, typer.Option(min=1, help="Token of the grant, as tocsin locks show shows it.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Free a lock at once. Only if you know that its holder has stopped.

    If the holder still runs, two processes then work at the same time. Use revoke if you are not sure.

    Examples:
        tocsin locks release nightly --token 1795256515250 --yes
    """
    session.confirm(f"free the lock {name} although its holder may still run", yes)
    session.send("DELETE", api_path("locks", name), repeatable=True, token=token)
    session.print_result({"lock": name, "token": token, "released": True}, f"grant {token} of lock {name} has ended")


def revoke(session: CommandSession, name: Name, note: Note) -> None:
    """Let the grant of a lock run out. Nobody gets the lock before its holder must have stopped.

    Examples:
        tocsin locks revoke nightly --note 'it hangs'
    """
    found = session.send("POST", api_path("locks", name, "revoke"), {"note": note}, repeatable=True)
    left = found["free_after_ms"]
    text = f"lock {name} is revoked; it is free within {duration_text(left)}" if left else f"lock {name} is free: nobody holds it"
    session.print_result(found, text)


def run(
    name: Name,
    command: Annotated[list[str], typer.Argument(help="Program and its arguments, after --.", show_default=False)],
    profile: ConnectionName = "",
    url: Url = "",
    key: KeyOption = "",
    tenant: Tenant = None,
    allow_plain_http: AllowPlainHttp = False,
    ttl: Annotated[
        str, duration_option("Validity of a grant: if this machine stops, another process gets the lock soon after it, such as 30s.")
    ] = "PT30S",
    wait: Annotated[
        str | None, duration_option("Longest time to wait for the lock, such as 10m; 0s: do not wait. Default: no limit.")
    ] = None,
    holder: Annotated[str | None, typer.Option(help="Name of this process, for people. Default: host and process id.")] = None,
    grace: Annotated[float, typer.Option(min=0, max=30, help=_GRACE_HELP)] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Report on standard error in lines of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Report only failures.")] = False,
) -> None:
    """Wait for a lock, run a command while it is held and renewed, and release it.

    The command's environment has TOCSIN_LOCK and TOCSIN_TOKEN, the fencing token for the storage that it writes to. The command is ended
    before anybody else can get the lock, also if tocsin is killed.

    Examples:
        tocsin locks run nightly -- ./report.sh
        tocsin locks run nightly --wait 0s --ttl 1m -- ./report.sh
    """
    import os
    from datetime import timedelta

    from ...client.locking.rules import check_name
    from ...core.durations import parse_duration
    from ..connections import resolve_connection
    from ..node.lock_run import LockRun, run_locked
    from ..session import usage_errors

    with usage_errors("NAME"):
        check_name(name)
    with usage_errors("--ttl"):
        validity = timedelta(milliseconds=parse_duration(ttl))
        if not timedelta(seconds=2) <= validity <= timedelta(hours=1):
            raise ValueError("must be from 2 seconds to 1 hour")
    longest = None if wait is None else timedelta(milliseconds=parse_duration(wait))
    app = resolve_connection(os.environ, profile=profile, url=url, key=key, tenant=tenant, allow_plain_http=allow_plain_http)
    raise typer.Exit(run_locked(LockRun(app, name, tuple(command), validity, longest, holder, grace, json, quiet)))


def _row(lock: Mapping[str, Any]) -> Sequence[Any]:
    fields = (lock.get(each) for each in ("name", "state", "holder", "token", "renewed", "free_at"))
    return (*fields, len(lock["waiters"]) or None, lock.get("note"))
