"""The dashboard in a real browser: the devhost with storage in memory, and the machine's Chromium.

Where there is no Chromium these tests are left out, and a line at the end of the run says so.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright
from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from devhost.azurite import Azurite
from devhost.starting import DidNotStart
from tests import waiting
from tests.conftest import CHROMIUM
from tests.integration.scheduler.conftest import System
from tests.integration.scheduler.receiver import Receiver
from tests.paths import ROOT
from tests.waiting import ran_out

from .page import TIMEOUT, Look
from .stage import Stage

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without a browser there is nothing to collect here."""
    return True if CHROMIUM is None and collection_path.suffix == ".py" else None


def _waits() -> Generator[None, object, object]:
    """Have the waits of Playwright's own actions raise StillWaiting when they run out."""
    try:
        return (yield)
    except PlaywrightTimeout as error:
        failed = error
    ran_out("the page", TIMEOUT / 1000, str(failed), failed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    return (yield from _waits())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _waits())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    return (yield from _waits())


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A living app, seeded once for all tests of the folder."""
    receiver = Receiver().start()
    try:
        with Azurite(memory=True) as azurite:
            system = System(tmp_path_factory.mktemp("devhost"), azurite, receiver)
            try:
                system.host.start()
                with Stage(system.host.url, receiver) as stage:
                    yield stage.seed()
            finally:
                system.host.end()
    finally:
        receiver.stop()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The machine's Chromium."""
    async with async_playwright() as playwright:
        try:
            running = await playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=list(FLAGS))
        except PlaywrightError as error:
            raise DidNotStart(f"Chromium did not start: {error}") from error
        yield running
        await running.close()


@pytest_asyncio.fixture(loop_scope="session")
async def look(browser: Browser, stage: Stage) -> AsyncIterator[Look]:
    """A page at the dashboard; afterwards it must have had no error of its own, and asked nobody else."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB", timezone_id="UTC")
    page = Look(await context.new_page(), stage.url)
    yield page
    # An answer that is still being made up has nobody to be given to.
    await page.page.unroute_all(behavior="ignoreErrors")
    await context.close()
    page.was_clean()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site that `make docs` builds."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = waiting.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    serving.join()
    server.server_close()
