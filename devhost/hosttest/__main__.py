"""`python -m devhost.hosttest`: prints one line for each check; the exit code is 1 if a check has failed.

By default it tests this repository's devhost, on storage of its own. The environment names any other host that runs the app:

    HOST_URL         where the host listens: http://localhost:7071
    HOST_STORAGE     connection string of the storage that the app works on
    HOST_START       shell command that runs the host until it is stopped, such as `func start`; without it, the host must already run, and
                     nothing is restarted
    HOST_STOP        shell command that ends it in order; by default, SIGTERM. HOST_PID is the process that HOST_START began
    HOST_KEY         the host's master key, for drains
    HOST_ADMIN_KEY   the app's TOCSIN_ADMIN_KEY, by default that of local.settings.sample.json

The app must be allowed to deliver to http://127.0.0.1 (`TOCSIN_EGRESS_ALLOW`), as in local.settings.sample.json.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import aiohttp

from devhost.azurite import ROOT, Azurite
from devhost.host.http import BODY_LIMIT
from devhost.host.settings import load_values
from devhost.hosttest import checks, restarts
from devhost.hosttest.checks import Target
from devhost.hosttest.driver import HostDriver, HostUnderTest, devhost_under_test
from devhost.hosttest.receiver import ArrivalReceiver


class Report:
    """Prints the outcome of each check."""

    def __init__(self) -> None:
        self.failed = 0

    async def run(self, name: str, check: Awaitable[str]) -> None:
        """Run a check and print its line."""
        try:
            line, mark = await check, "ok    "
        except restarts.NotChecked as reason:
            line, mark = str(reason), "skip  "
        except Exception as error:  # a check that cannot go on has failed
            self.failed += 1
            line, mark = " ".join(f"{type(error).__name__}: {error}".split())[:300], "FAILED"
        print(f"{mark} {name.replace('_', ' ')}: {line}", flush=True)


def under_test(storage: str, key: str) -> HostUnderTest:
    """Return the host that the environment names, or the devhost."""
    url = os.environ.get("HOST_URL", "").rstrip("/")
    if not url:
        return devhost_under_test(storage, key)
    settings = {"TocsinStorage": storage, "AzureWebJobsStorage": storage}
    return HostUnderTest(url, os.environ.get("HOST_START", ""), os.environ.get("HOST_STOP", ""), settings)


@contextlib.asynccontextmanager
async def target(url: str, storage: str, receiver: ArrivalReceiver, receiver_url: str) -> AsyncIterator[Target]:
    """A tenant of the test's own, which is removed at the end."""
    values = load_values(ROOT)
    admin_key = os.environ.get("HOST_ADMIN_KEY") or values["TOCSIN_ADMIN_KEY"]
    limit = int(os.environ.get(BODY_LIMIT) or values[BODY_LIMIT])
    name = f"hosttest-{secrets.token_hex(4)}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        admin = Target(url, name, admin_key, admin_key, limit, storage, receiver, session)
        status, document = await admin.call("PUT", f"tenants/{name}", {})
        assert status == 201, document
        status, document = await admin.call("POST", f"tenants/{name}/keys", {"scopes": ["events"]})
        assert status == 201, document
        found = Target(url, name, document["key"], admin_key, limit, storage, receiver, session)
        status, document = await admin.call("PUT", f"tenants/{name}/channels/default", {"type": "http", "url": receiver_url})
        assert status == 201, document
        try:
            yield found
        finally:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                await admin.call("DELETE", f"tenants/{name}")


async def run(storage: str, output: Path, *, quick: bool) -> int:
    """Run all checks; return the exit code."""
    report, receiver = Report(), ArrivalReceiver()
    key = os.environ.get("HOST_KEY") or ("" if os.environ.get("HOST_URL") else secrets.token_hex(16))
    host = HostDriver(under_test(storage, key), output)
    receiver_url = await receiver.start()
    try:
        print(f"host   {host.url} answers after {await host.start():.1f} s", flush=True)
        async with target(host.url, storage, receiver, receiver_url) as found:
            for check in checks.CHECKS:
                await report.run(check.__name__, check(found))
            for restart in () if quick or not host.restarts else restarts.CHECKS:
                await report.run(restart.__name__, restart(found, host, key))
            if not host.restarts:
                print("skip   restarts: set HOST_START", flush=True)
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
    parser.add_argument("--quick", action="store_true", help="leave out the restarts")
    given = parser.parse_args()
    output = Path(tempfile.mkdtemp(prefix="hosttest-")) / "host.txt"
    storage = os.environ.get("HOST_STORAGE", "")
    if os.environ.get("HOST_URL"):
        if not storage:
            parser.error("HOST_URL needs HOST_STORAGE, the connection string of the app's storage")
        sys.exit(asyncio.run(run(storage, output, quick=given.quick)))
    with Azurite(memory=True) as azurite:
        sys.exit(asyncio.run(run(azurite.connection_string, output, quick=given.quick)))


if __name__ == "__main__":
    main()
