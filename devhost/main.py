"""Starts everything a developer needs, and ends it.

Order of the start: the data folder is locked, Azurite is spawned, the receiver listens, the environment is set, the worker process
indexes the app, storage answers, triggers start. The end is that of the Functions host: nothing new is accepted, running invocations
get `DEVHOST_GRACE` seconds, the worker is killed without notice, and then the receiver and storage stop.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from devhost.azurite import ROOT, Azurite, AzuriteError, check_port, development_connection
from devhost.flex import FlexRules, RefusalRules, RuleError
from devhost.host.settings import (
    DEVELOPMENT_STORAGE,
    SettingsError,
    apply_values,
    blob_address,
    is_disabled,
    load_host,
    load_values,
)
from devhost.logs import set_up_logging
from devhost.loops import LoopError, chosen_loop, loop_factory
from devhost.worker.invocation_log import InvocationLog
from devhost.worker.model import AppIndexError, FunctionInfo
from devhost.worker.pool import WorkerPool
from devhost.worker.process import WorkerOptions
from shared.core.answered_hosts import AnsweredHosts
from shared.ops.export.host_log import lowest_level

if TYPE_CHECKING:
    from devhost.host.groups import HostGroups
    from devhost.host.http import HttpFunctions
    from devhost.receiver import DevhostReceiver
    from devhost.tokens import FakeIdentity, LocalCertificate

log = logging.getLogger("devhost")

DEFAULT_PORTS = (10000, 10001, 10002)
HOSTS = "DEVHOST_HOSTS"
"""Environment variable with further hosts that are answered for, separated by commas."""
STORAGE_SETTINGS = ("TocsinStorage", "AzureWebJobsStorage")
GRACE = 10
"""Seconds that running invocations get after SIGTERM: those of the Functions host."""
INTERRUPT_GRACE = 1.0
"""The same after Ctrl-C, because a person waits."""
CLOSE_TIMEOUT = 10.0
"""Seconds for settling the messages of finished invocations."""


@dataclass(frozen=True)
class Options:
    """The options of the devhost; see `python -m devhost --help`. A port of 0 chooses a free one."""

    app: Path
    host: str
    port: int
    receiver: int | None  # None: no receiver
    azurite: str  # disk, memory or off
    location: Path  # the data, with disk
    storage_ports: tuple[int, int, int]  # blob, queue, table
    grace: float
    log_level: str
    loop: str  # uvloop or asyncio
    split: bool  # a worker process for each group of functions
    flex: FlexRules | None  # the rules by which groups go to zero; None: they never do
    refusals: RefusalRules | None  # what ends a host; None: nothing does
    tokens: bool  # a fake identity endpoint, and https to the receiver
    receiver_tls: int  # the port of that
    invocations: Path | None  # file that gets two lines for each invocation
    hosts: AnsweredHosts  # those that are answered for


def parse(arguments: list[str], environ: Mapping[str, str]) -> Options:
    """Options from the command line and the environment; ends the process with a message when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m devhost",
        description="Runs the function app with Azurite and a receiver for its deliveries.",
        epilog="Environment: PORT, RECEIVER_PORT, AZURITE=memory|off, AZURITE_LOCATION (a folder), AZURITE_BLOB_PORT, "
        "AZURITE_QUEUE_PORT, AZURITE_TABLE_PORT, DEVHOST_GRACE (seconds), DEVHOST_LOOP=asyncio|uvloop, DEVHOST_MASTER_KEY, "
        "DEVHOST_HOSTS (further hosts that may stand in a request's Host header, separated by commas), "
        "DEVHOST_INVOCATIONS (a file that gets two lines for each invocation), SPLIT=1 (a process for each group of functions), "
        "DEVHOST_FLEX=on (groups that go to zero as on Flex Consumption; or rules such as idle=30,cold=4,poll=10,ticks=ahead), "
        "DEVHOST_REFUSED=off (a storage endpoint that refuses connections ends no host; or rules such as ends=26,again=3), "
        "TOKENS=1 (a fake identity endpoint, and the receiver by https at RECEIVER_TLS_PORT), LOG_LEVEL.",
    )
    parser.add_argument("--app", type=Path, default=ROOT, help="the folder with function_app.py (default: the repository)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--no-azurite", action="store_true", help="use the storage that the settings name")
    parser.add_argument("--no-receiver", action="store_true", help="do not run the receiver")
    given = parser.parse_args(arguments)

    def number(name: str, default: int) -> int:
        try:
            return int(environ.get(name) or default)
        except ValueError:
            parser.error(f"{name} must be a number, not {environ[name]!r}")

    def rules[T](name: str, read: Callable[[str], T]) -> T:
        try:
            return read(environ.get(name, ""))
        except RuleError as error:
            parser.error(f"{name}: {error}")

    def port(name: str, default: int) -> int:
        chosen = number(name, default)
        if not 0 <= chosen <= 65_535:
            parser.error(f"{name} must be a port, 0 to 65535, not {chosen}")
        return chosen

    azurite = "off" if given.no_azurite else (environ.get("AZURITE") or "disk")
    if azurite not in ("disk", "memory", "off"):
        parser.error(f"AZURITE must be memory or off, not {azurite!r}")
    level = (environ.get("LOG_LEVEL") or "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        parser.error(f"LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {environ['LOG_LEVEL']!r}")
    try:
        loop = chosen_loop(environ)
    except LoopError as error:
        parser.error(str(error))
    try:
        hosts = AnsweredHosts((given.host, *filter(None, map(str.strip, environ.get(HOSTS, "").split(",")))))
    except ValueError:
        parser.error(
            f"{HOSTS} must hold names and addresses without ports, such as 'tocsin,my-name.example', not {environ.get(HOSTS, '')!r}"
        )
    blob, queue, table = DEFAULT_PORTS
    flex = rules("DEVHOST_FLEX", FlexRules.of)
    return Options(
        app=given.app.resolve(),
        host=given.host,
        port=port("PORT", 7071),
        receiver=None if given.no_receiver else port("RECEIVER_PORT", 7072),
        azurite=azurite,
        location=Path(environ.get("AZURITE_LOCATION") or ROOT / ".azurite").resolve(),
        storage_ports=(
            port("AZURITE_BLOB_PORT", blob),
            port("AZURITE_QUEUE_PORT", queue),
            port("AZURITE_TABLE_PORT", table),
        ),
        grace=number("DEVHOST_GRACE", GRACE),
        log_level=level,
        loop=loop,
        split=flex is not None or environ.get("SPLIT", "") not in ("", "0"),
        flex=flex,
        refusals=rules("DEVHOST_REFUSED", RefusalRules.of),
        tokens=environ.get("TOKENS", "") not in ("", "0"),
        receiver_tls=port("RECEIVER_TLS_PORT", 7073),
        invocations=Path(environ["DEVHOST_INVOCATIONS"]) if environ.get("DEVHOST_INVOCATIONS") else None,
        hosts=hosts,
    )


class DevHost:
    """The host, its triggers and the helpers around them. `stop` works after a start that failed half-way, too."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._azurite: Azurite | None = None
        self._receiver: DevhostReceiver | None = None
        self._identity: FakeIdentity | None = None
        self._certificate: LocalCertificate | None = None
        self._workers: WorkerPool | None = None
        self._http: HttpFunctions | None = None
        self._groups: HostGroups | None = None

    async def start(self) -> str:
        """Starts everything and returns the app's URL."""
        options = self._options
        await self._reserve_storage()
        check_port(options.host, options.port, "the API", "PORT")
        if self._azurite is not None:
            self._azurite.spawn()
        receiver_url = await self._start_receiver()
        secure_url = await self._start_tokens()
        self._set_environment(receiver_url)
        host = load_host(options.app)
        given = WorkerOptions(options.app, host.route_prefix, options.log_level, options.loop, host.function_timeout, host.log_levels)
        record = InvocationLog(options.invocations) if options.invocations is not None else None
        workers = self._workers = WorkerPool(given, split=options.split, record=record)
        await workers.spawn()
        # These take half a second; the worker imports the app meanwhile.
        from devhost.host.groups import HostGroups
        from devhost.host.http import HttpFunctions, body_limit
        from devhost.host.instance import HostParts
        from devhost.host.pages import HostPages
        from devhost.host.queues import storage_log

        storage_log.setLevel(lowest_level(host.log_levels, storage_log.name))
        functions = [function for function in await workers.start() if not is_disabled(function.name, os.environ)]
        front = f"/{host.route_prefix}/dashboard" if any(function.name == "dashboard" for function in functions) else None
        lease = blob_address("AzureWebJobsStorage") if options.refusals is not None else None
        groups = self._groups = HostGroups(functions, HostParts(workers, host.queues, options.refusals, options.flex, lease))
        self._http = groups.http = HttpFunctions(
            groups,
            functions,
            prefix=host.route_prefix,
            body_limit=body_limit(os.environ),
            hosts=options.hosts,
            host_page=HostPages(os.environ, groups.drain, lambda: len(workers.running), groups.run_timer, groups.kill, front),
        )
        if self._azurite is not None:
            await self._azurite.ready()
        port = await self._http.start(options.host, options.port)
        await groups.start()
        url = f"http://{options.host}:{port}"
        workers.tell_url(f"{url}/api/v1")
        print(_banner(options, url, receiver_url, functions, secure_url), flush=True)
        return url

    async def _reserve_storage(self) -> None:
        options = self._options
        if options.azurite == "off":
            return
        memory = options.azurite == "memory"
        blob, queue, table = options.storage_ports
        self._azurite = Azurite(blob=blob, queue=queue, table=table, memory=memory, location=None if memory else options.location)
        await self._azurite.reserve()

    async def _start_receiver(self) -> str | None:
        port = self._options.receiver
        if port is None:
            return None
        check_port(self._options.host, port, "the receiver", "RECEIVER_PORT")
        from devhost.receiver import DevhostReceiver

        self._receiver = DevhostReceiver(self._options.hosts)
        return f"http://{self._options.host}:{await self._receiver.start(self._options.host, port)}/"

    async def _start_tokens(self) -> str | None:
        """Start the fake identity, and https to the receiver if there is one; return that address."""
        if not self._options.tokens:
            return None
        from devhost.tokens import FakeIdentity, LocalCertificate

        self._identity = FakeIdentity()
        os.environ.update(await self._identity.start())
        if self._receiver is None:
            return None
        check_port(self._options.host, self._options.receiver_tls, "the receiver by https", "RECEIVER_TLS_PORT")
        certificate = self._certificate = LocalCertificate()
        os.environ["SSL_CERT_FILE"] = str(certificate.trusted)
        port = await self._receiver.start_tls(self._options.host, self._options.receiver_tls, certificate.context)
        return f"https://localhost:{port}/"

    def _set_environment(self, receiver_url: str | None) -> None:
        """Set the app's environment. Existing variables win, then values that only this process knows, then the settings file."""
        if receiver_url is not None:
            os.environ.setdefault("TOCSIN_RECEIVER", receiver_url)
        apply_values(load_values(self._options.app), os.environ)
        if self._options.port and self._options.host in ("127.0.0.1", "localhost"):
            # For receivers of long work; the platform's host names itself.
            os.environ.setdefault("TOCSIN_PUBLIC_URL", f"http://{self._options.host}:{self._options.port}")
        if self._azurite is None:
            blob, queue, table = self._options.storage_ports
            ours = development_connection(blob, queue, table)
        else:
            ours = self._azurite.connection_string
        for name in STORAGE_SETTINGS:
            if os.environ.get(name, DEVELOPMENT_STORAGE) in ("", DEVELOPMENT_STORAGE):
                os.environ[name] = ours

    def kill(self) -> None:
        """End the worker processes at once."""
        if self._workers is not None:
            self._workers.kill()

    async def stop(self, grace: float) -> None:
        """End everything in order. Running invocations get `grace` seconds; then the worker is killed without notice."""
        ends_at = asyncio.get_running_loop().time() + grace
        if self._http is not None and self._groups is not None and self._workers is not None:
            await asyncio.gather(self._http.stop_accepting(), self._groups.drain())
            await self._workers.drain(max(0.0, ends_at - asyncio.get_running_loop().time()))
        if self._workers is not None and (abandoned := self._workers.kill()):
            log.warning("cut off after %g s: %s", grace, ", ".join(sorted(abandoned)))
        if self._workers is not None:
            await self._workers.last_lines()
        if self._http is not None and self._groups is not None:
            closing = asyncio.gather(self._groups.close(), self._http.close())
            await _bounded("finished messages were not settled", closing)
        if self._receiver is not None:
            await self._receiver.close()
        if self._identity is not None:
            await self._identity.close()
        if self._certificate is not None:
            self._certificate.remove()
        if self._azurite is not None:
            self._azurite.stop()


async def _bounded(what: str, work: Awaitable[object]) -> None:
    try:
        await asyncio.wait_for(work, CLOSE_TIMEOUT)
    except Exception:  # the rest of the shutdown must go on
        log.exception("%s", what)


def _banner(options: Options, url: str, receiver_url: str | None, functions: list[FunctionInfo], secure_url: str | None) -> str:
    storage = {"disk": f"Azurite, data in {options.location}", "memory": "Azurite, in memory", "off": "as in the settings"}
    kinds = [function.trigger["type"] for function in functions]
    counts = ", ".join(f"{kinds.count(f'{kind}Trigger')} {kind}" for kind in ("http", "queue", "timer"))
    lines = [
        f"Tocsin runs {len(functions)} functions ({counts}).",
        f"  API        {url}/api/v1",
        f"  Described  {url}/api/openapi.json",
        *([f"  Dashboard  {url}/api/dashboard"] if any(function.name == "dashboard" for function in functions) else []),
        f"  Receiver   {receiver_url or 'off'}",
        *([f"  Tokens     {secure_url} may get tokens of a fake identity"] if secure_url is not None else []),
        f"  Storage    {storage[options.azurite]}",
    ]
    if receiver_url is not None:
        lines += [
            "A first event, delivered to the receiver after five seconds:",
            f"  curl -X POST {url}/api/v1/events -H 'Authorization: Bearer local-demo-key' \\",
            '    -H \'Content-Type: application/json\' -d \'{"delay":"PT5S","payload":{"hello":"world"}}\'',
        ]
    return "\n".join([*lines, "Ctrl-C ends it."])


async def run(options: Options) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit code. A second signal ends the process at once with code 1."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    grace = options.grace
    host = DevHost(options)

    def on_signal(number: int) -> None:
        nonlocal grace
        if stopped.is_set():
            host.kill()
            os._exit(1)  # Azurite notices by itself
        if number == signal.SIGINT:
            grace = min(grace, INTERRUPT_GRACE)
        log.info("stopping; a second signal stops at once")
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    starting = asyncio.create_task(host.start())
    stopping = asyncio.create_task(stopped.wait())
    code = 0
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            print(f"devhost ready {starting.result()}", flush=True)
        await stopping
    except (AppIndexError, AzuriteError, SettingsError, OSError) as error:
        what = "the app cannot be indexed: " if isinstance(error, AppIndexError) else ""
        print(f"devhost: {what}{error}", file=sys.stderr, flush=True)
        code = 1
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await host.stop(grace)
    return code


def main(arguments: list[str] | None = None) -> None:
    """The command `python -m devhost`."""
    options = parse(sys.argv[1:] if arguments is None else arguments, os.environ)
    set_up_logging(options.log_level)
    sys.exit(asyncio.run(run(options), loop_factory=loop_factory(options.loop)))
