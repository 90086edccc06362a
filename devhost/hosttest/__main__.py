"""`python -m devhost.hosttest`: prints one line for each check; the exit code is 1 if a check has failed.

By default it tests this repository's devhost. The environment names any other host that runs the app:

    HOST_START       shell command that runs the host until it is stopped, such as `func start --port {port}`; {port} becomes a free port.
                     Without it, the host must already run, and nothing is restarted
    HOST_URL         where the host listens, if HOST_START has no {port}: http://localhost:7071
    HOST_STORAGE     connection string of the storage that the app works on; without it, HOST_START gets an emulator of the test's own in
                     TocsinStorage and AzureWebJobsStorage, and the emulator is away for 40 s
    HOST_STOP        shell command that ends it in order; by default, SIGTERM. HOST_PID is the process that HOST_START began
    HOST_KEY         the host's master key, for drains
    HOST_ADMIN_KEY   the app's TOCSIN_ADMIN_KEY, by default that of local.settings.sample.json

The app must be allowed to deliver to http://127.0.0.1 (`TOCSIN_EGRESS_ALLOW`), as in local.settings.sample.json, and have no exporter.
`--integration` runs the tests of tests/integration that need a host against it instead.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import aiohttp

from devhost.azurite import ROOT
from devhost.host.http import BODY_LIMIT
from devhost.host.settings import load_values
from devhost.hosttest import checks, outage, restarts
from devhost.hosttest.checks import Target
from devhost.hosttest.driver import PORT, HostDriver, devhost_under_test, host_under_test
from devhost.hosttest.outage import OwnStorage
from devhost.hosttest.receiver import ArrivalReceiver


class Report:
    """Prints the outcome of each check."""

    def __init__(self) -> None:
        self.failed = 0

    async def run(self, name: str, check: Awaitable[str]) -> None:
        """Run a check and print its line."""
        try:
            line, mark = await check, "ok    "
        except checks.NotChecked as reason:
            line, mark = str(reason), "skip  "
        except Exception as error:  # a check that cannot go on has failed
            self.failed += 1
            line, mark = " ".join(f"{type(error).__name__}: {error}".split())[:300], "FAILED"
        print(f"{mark} {name.replace('_', ' ')}: {line}", flush=True)


INTEGRATION = tuple(f"tests/integration/{part}" for part in ("scheduler", "fleets", "checkpoints", "client", "kafka"))
"""Tests that run on any host."""


@contextlib.asynccontextmanager
async def target(host: HostDriver, storage: str, receiver: ArrivalReceiver, receiver_url: str) -> AsyncIterator[Target]:
    """A tenant of the test's own, which is removed at the end."""
    values = load_values(ROOT)
    admin_key = os.environ.get("HOST_ADMIN_KEY") or values["TOCSIN_ADMIN_KEY"]
    limit = int(os.environ.get(BODY_LIMIT) or values[BODY_LIMIT])
    url, output = host.url, host.output if host.restarts else None
    name = f"hosttest-{secrets.token_hex(4)}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        admin = Target(url, name, admin_key, admin_key, limit, storage, receiver, session, output)
        status, document = await admin.call("PUT", f"tenants/{name}", {})
        assert status == 201, document
        status, document = await admin.call("POST", f"tenants/{name}/keys", {"scopes": ["events"]})
        assert status == 201, document
        found = Target(url, name, document["key"], admin_key, limit, storage, receiver, session, output)
        status, document = await admin.call("PUT", f"tenants/{name}/channels/default", {"type": "http", "url": receiver_url})
        assert status == 201, document
        try:
            yield found
        finally:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await admin.call("DELETE", f"tenants/{name}")


async def run(storage: str, output: Path, own: OwnStorage | None, *, quick: bool) -> int:
    """Run all checks; return the exit code. own: the storage, if it can be stopped."""
    report, receiver = Report(), ArrivalReceiver()
    settings = {"TocsinStorage": storage, "AzureWebJobsStorage": storage}
    given = host_under_test(os.environ, settings)
    key = os.environ.get("HOST_KEY") or ("" if given is not None else secrets.token_hex(16))
    host = HostDriver(given or devhost_under_test(storage, key), output)
    receiver_url = await receiver.start()
    try:
        print(f"host   {host.url} answers after {await host.start():.1f} s", flush=True)
        async with target(host, storage, receiver, receiver_url) as found:
            for check in checks.CHECKS:
                await report.run(check.__name__, check(found))
            for restart in () if quick or not host.restarts else restarts.CHECKS:
                await report.run(restart.__name__, restart(found, host, key))
            if not host.restarts:
                print("skip   restarts: set HOST_START", flush=True)
            if not quick:
                await report.run(outage.storage_outage.__name__, outage.storage_outage(found, host, own))
        await report.run("stop", _stopped(host))
    finally:
        await host.kill()
        await receiver.close()
    print(f"{report.failed} checks failed; the host's output is in {output}" if report.failed else "all checks passed", flush=True)
    return 1 if report.failed else 0


async def _stopped(host: HostDriver) -> str:
    return f"{await host.stop():.1f} s" if host.restarts else "the host keeps running, because HOST_START is not set"


def main() -> None:
    """The command."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="python -m devhost.hosttest", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="leave out the restarts and the outage")
    parser.add_argument("--integration", action="store_true", help="run the tests of tests/integration on HOST_START")
    given, further = parser.parse_known_args()
    if given.integration:
        if PORT not in os.environ.get("HOST_START", ""):
            parser.error(f"--integration needs HOST_START, the command that runs the host, with {PORT} in it: func start --port {PORT}")
        sys.exit(subprocess.run([sys.executable, "-m", "pytest", *INTEGRATION, *further], cwd=ROOT, check=False).returncode)
    if further:
        parser.error(f"unrecognized arguments: {' '.join(further)}")
    folder = Path(tempfile.mkdtemp(prefix="hosttest-"))
    output, storage = folder / "host.txt", os.environ.get("HOST_STORAGE", "")
    if os.environ.get("HOST_URL") and not storage and not os.environ.get("HOST_START"):
        parser.error(
            "HOST_URL needs HOST_STORAGE, the connection string of the app's storage, or HOST_START, the command that runs the host"
        )
    if storage:
        sys.exit(asyncio.run(run(storage, output, None, quick=given.quick)))
    with OwnStorage(folder / "storage") as own:
        sys.exit(asyncio.run(run(own.connection_string, output, own, quick=given.quick)))


if __name__ == "__main__":
    main()
