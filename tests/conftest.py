"""Settings of all tests. Property tests use the same examples on every machine, however busy it is."""

import gc
import os
import shutil
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, settings

from devhost.loops import LoopFactory, chosen_loop, loop_factory
from tests.any_host import leave_out

settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# The agent refuses files that the group can write to, which some machines' umask allows.
os.umask(0o022)

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)
"""The browser that tests/browser drives, or None. The shell without windows first: a page costs it a fifth of the CPU."""


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Tests run on the loop that the devhost runs on: uvloop, as in production, or asyncio's own with DEVHOST_LOOP=asyncio.

    Tests with the mark `metered` run on asyncio's own: its steps can be measured.
    """
    name = "asyncio" if item.get_closest_marker("metered") else chosen_loop(os.environ)
    return {name: loop_factory(name)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs the devhost where another host runs the app."""
    leave_out(items)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Without collections of garbage every later test of the process would be slower and take more memory."""
    if not gc.isenabled():
        gc.enable()
        pytest.fail(f"{item.nodeid} leaves the garbage collector off")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Nobody is to think that the dashboard was tested where it was not."""
    if CHROMIUM is None:
        notice = "tests/browser was left out: there is no chromium on PATH (Debian: apt-get install chromium-headless-shell)"
        terminalreporter.write_line(notice, yellow=True, bold=True)
