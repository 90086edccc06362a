"""`tocsin dev`: the whole service in this process, for trials and for development against it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .exits import Exit
from .failures import CommandFailed
from .help import add_command
from .node.programs import run_until_signal

if TYPE_CHECKING:
    from ..delivery.channels.ports import OutgoingDelivery, Target, Verdict
    from ..local.service import Keys, LocalOptions, LocalService
    from ..local.stores import StoreChoice

KEY_VARIABLES: Final = ("TOCSIN_ADMIN_KEY", "TOCSIN_SIGNING_KEY", "TOCSIN_KEY")
"""Environment variables with the user's own keys: the admin key, the master key of webhook secrets, the key of tenant `demo`."""
EGRESS: Final = "TOCSIN_EGRESS_ALLOW"
"""Environment variable with further hosts and networks that channels may reach."""
OPEN_FILES: Final = 2_048
SHORTEST_KEY: Final = 20
_KEYS: Final = f"Set {', '.join(KEY_VARIABLES)} to different texts of at least {SHORTEST_KEY} characters."
_ACCOUNT: Final = re.compile("[a-z0-9]{3,24}")
_STORAGE_HELP = "Storage: azurite (on its usual ports), a connection string, or the name of a storage account."
_HOST_HELP = "Address to listen on. One that other machines reach needs keys of your own; see below."
_NOTES = f"Keys of your own: {_KEYS} Channels reach this machine, public https, and what {EGRESS} names."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "dev", dev, notes=_NOTES)


def dev(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of API, dashboard and receiver. 0 chooses a free one.")] = 7071,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help=_HOST_HELP)] = "localhost",
    data: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep the data in this folder. Without it, nothing is kept.")] = None,
    storage: Annotated[str | None, typer.Option(metavar="ACCOUNT", help=_STORAGE_HELP)] = None,
    json: Annotated[bool, typer.Option("--json", help="Report in lines of JSON.")] = False,
) -> None:
    """Run the whole service in one process: API, dashboard, and a receiver that shows what arrives.

    It has a tenant `demo` with public keys, and prints a first call to copy. It is for trials and development, not for production.

    Examples:
        tocsin dev
        tocsin dev --data ./tocsin-data
        tocsin dev --port 8080 --storage azurite
    """
    try:
        from ..local import service
    except ImportError as missing:
        raise CommandFailed(_missing(missing), advice=_INSTALL) from None
    from ..core.errors import UnsafeSettings
    from ..local.http_server import PortTaken
    from ..storage.sqlite.database import FolderRefused

    store = _store(data, storage)
    options = service.LocalOptions(host, port, store, _keys(host, store, service.Keys), os.environ.get(EGRESS, ""))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname).1s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    _allow_open_files()
    try:
        status = asyncio.run(_run(options, _Report(as_json=json)))
    except PortTaken as taken:
        advice = "End the other program, or choose another port, such as --port 7081."
        if taken.address:
            advice = "Name an address of this machine, such as 0.0.0.0 for all."
        raise CommandFailed(str(taken), where="--host" if taken.address else "--port", advice=advice, status=Exit.USAGE) from None
    except FolderRefused as refused:
        advice = f"{'End the other `tocsin dev`, or choose' if refused.in_use else 'Choose'} another folder."
        raise CommandFailed(str(refused), where="--data", advice=advice, status=Exit.USAGE) from None
    except UnsafeSettings as unsafe:
        advice = "" if store.emulated else f"An account needs keys of your own. {_KEYS}"
        raise CommandFailed(str(unsafe), where="" if storage is None else "--storage", advice=advice, status=Exit.USAGE) from None
    raise typer.Exit(status)


def _allow_open_files() -> None:
    """Allow as many open files as the connections of the server and of deliveries need. Some systems begin with 256."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < OPEN_FILES:
            resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES), hard))


_INSTALL = "Install the wheel with its extra `dev`: pip install './dist/tocsin-….whl[dev]' (`make wheel` builds it)."


def _missing(missing: ImportError) -> str:
    return f"tocsin dev needs {missing.name}" if missing.name else str(missing)


def _store(data: Path | None, storage: str | None) -> StoreChoice:
    """Return the chosen storage. Raises `CommandFailed`."""
    from ..local.stores import StoreChoice

    if data is not None and storage is not None:
        title = "--data and --storage exclude each other"
        raise CommandFailed(title, where="--data, --storage", advice="Leave one of them out.", status=Exit.USAGE)
    if storage is None:
        return StoreChoice(data)
    if storage == "azurite":
        return StoreChoice(connection="UseDevelopmentStorage=true")
    if "=" in storage:
        return StoreChoice(connection=storage)
    if _ACCOUNT.fullmatch(storage):
        return StoreChoice(account=storage)
    # The value may be the secret of a connection string, so it is not shown.
    advice = "Write azurite, AccountName=...;AccountKey=..., or a name of 3 to 24 lower-case letters and digits."
    raise CommandFailed("the storage is none of the possible values", where="--storage", advice=advice, status=Exit.USAGE)


def _keys(host: str, store: StoreChoice, made: type[Keys]) -> Keys:
    """Return the keys of the environment if all are set, else the public ones. Raises `CommandFailed`."""
    from ..core.answered_hosts import is_loopback

    admin, signing, own = (os.environ.get(name, "") for name in KEY_VARIABLES)
    if is_loopback(host):
        if not store.emulated:
            # The settings refuse public keys. An account has its own tenants, so the key of `demo` is not needed.
            return made(admin or made().admin, signing or made().signing)
        return made(admin, signing, own) if admin and signing and own else made()
    if missing := [name for name in KEY_VARIABLES if not os.environ.get(name)]:
        raise _refused_host(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set")
    keys = made(admin, signing, own)
    if keys.public or len({admin, signing, own}) < 3 or min(map(len, (admin, signing, own))) < SHORTEST_KEY:
        raise _refused_host("the keys could be guessed")
    return keys


def _refused_host(reason: str) -> CommandFailed:
    title = f"other machines reach this address, and {reason}"
    return CommandFailed(title, where="--host", advice=_KEYS, status=Exit.USAGE)


async def _run(options: LocalOptions, report: _Report) -> int:
    """Run until a signal; return the exit code."""
    from ..local.service import LocalService

    async def work() -> int:
        async with LocalService(options, report.attempt) as service:
            report.ready(options, service)
            await asyncio.Event().wait()
        return Exit.OK

    return await run_until_signal(work(), lambda number: None, again=os._exit, on_first=report.ending)


class _Report:
    """Prints the addresses, and each attempt at a delivery."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json

    def ready(self, options: LocalOptions, service: LocalService) -> None:
        """Show the addresses, the keys and a first call."""
        keys, has_demo = options.keys, options.store.emulated
        curl = (
            f"curl -X POST {service.url}/api/v1/events -H 'Authorization: Bearer {keys.demo}' "
            '-H \'Content-Type: application/json\' -d \'{"delay":"PT5S","payload":{"hello":"world"}}\''
        )
        found = {"api": f"{service.url}/api/v1", "dashboard": f"{service.url}/api/dashboard", "storage": _storage_text(options.store)}
        # Keys of the user's own are not printed: the output may become a log.
        found["admin_key"] = keys.admin if keys.public else "the value of TOCSIN_ADMIN_KEY"
        if has_demo:
            found |= {"receiver": service.receiver_url, "key": keys.demo, "secret": service.secret, "curl": curl}
            if not keys.public:
                found["key"], found["secret"] = "the value of TOCSIN_KEY", ""
                found["curl"] = curl.replace(f"'Authorization: Bearer {keys.demo}'", '"Authorization: Bearer $TOCSIN_KEY"')
        if self._json:
            self._print(json.dumps({"kind": "ready", **found}))
            return
        names = {"api": "API", "dashboard": "Dashboard", "receiver": "Receiver", "storage": "Storage", "key": "Key of demo"}
        names |= {"admin_key": "Admin key", "secret": "Secret"}
        lines = ["Tocsin is ready.", *(f"  {name:<11}  {found[part]}" for part, name in names.items() if found.get(part))]
        if has_demo:
            head, _, tail = found["curl"].partition(" -H 'Content-Type")
            lines += ["A first event, delivered to the receiver after five seconds:", f"  {head} \\", f"    -H 'Content-Type{tail}"]
        self._print("\n".join([*lines, "Ctrl-C ends it."]))

    def attempt(self, target: Target, delivery: OutgoingDelivery, verdict: Verdict) -> None:
        """Show an attempt at a delivery that has ended."""
        from ..core.clock import to_datetime, to_text
        from ..local.receiver import body_text, one_line
        from .terminal.output import printable

        body = body_text(delivery.body, delivery.content_type)
        if self._json:
            found: dict[str, Any] = {
                "kind": "delivery",
                "at": to_text(delivery.fired),
                "tenant": target.tenant,
                "channel": target.name,
                "id": delivery.id,
                "attempt": delivery.attempt,
                "late_ms": delivery.late_ms,
                "outcome": verdict.outcome,
                "status": verdict.status,
                "error": verdict.error,
                "payload": one_line(body),
            }
            self._print(json.dumps(found))
            return
        at = to_datetime(delivery.fired).astimezone().strftime("%H:%M:%S.%f")[:-3]
        answer = "" if verdict.status is None else f" {verdict.status}"
        failed = f" ({verdict.error})" if verdict.error else ""
        tries = f", attempt {delivery.attempt}" if delivery.attempt > 1 else ""
        text = f"{at} {verdict.outcome}{answer}{failed} {delivery.id} to {target.name}{tries}, {delivery.late_ms} ms late: {one_line(body)}"
        self._print(printable(text))

    def ending(self, _: int) -> None:
        """Say that the end has begun."""
        if not self._json:
            print("Ending. Ctrl-C once more ends it at once.", file=sys.stderr, flush=True)

    @staticmethod
    def _print(text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            # The reader of standard output has ended. The service goes on.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _storage_text(store: StoreChoice) -> str:
    if store.account:
        return f"account {store.account}"
    if store.connection:
        return "Azurite" if store.connection == "UseDevelopmentStorage=true" else "the account of the connection string"
    return f"folder {store.folder}" if store.folder is not None else "in memory: when this ends, the data is gone"
