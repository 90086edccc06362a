"""A plugin of pytest that points tests/conformance at one storage account, and reports each test on a pipe as a line of JSON.

`suite` starts pytest with it, and names the account in the environment.
"""

from __future__ import annotations

import json
import os
from typing import IO, Any

import pytest

from devhost.conformance.access import StorageAccess

ACCESS: pytest.StashKey[StorageAccess] = pytest.StashKey()
"""The account under test, in the configuration of pytest. Without it, the suite starts an emulator."""
PIPE = "CONFORMANCE_PIPE"
"""Environment variable with the number of the pipe's file descriptor."""
_SHOWN = 400
"""Characters of a failure's text."""


class Reporter:
    """Chooses the tests that need the account, and reports them."""

    def __init__(self, access: StorageAccess, pipe: IO[str]) -> None:
        self._access, self._pipe = access, pipe

    def _send(self, kind: str, **content: Any) -> None:
        print(json.dumps({"kind": kind, **content}), file=self._pipe, flush=True)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests that do not use the account, and those that only Azurite passes."""
        chosen, other, left_out = [], [], []
        for item in items:
            mark = item.get_closest_marker("azurite")
            if not _needs_account(item):
                other.append(item)
            elif mark is not None and not self._access.emulated:
                left_out.append([item.nodeid, f"needs Azurite: {mark.kwargs['reason']}"])
                other.append(item)
            else:
                chosen.append(item)
        items[:] = chosen
        config.hook.pytest_deselected(items=other)
        self._send("collected", count=len(chosen), left_out=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report a test once, and a failure of its fixtures too."""
        if report.when == "call" or report.failed:
            text = " ".join(str(getattr(report.longrepr, "reprcrash", None) or report.longrepr or "").split())
            self._send("test", name=report.nodeid, outcome=report.outcome, seconds=report.duration, text=text[:_SHOWN])

    def pytest_sessionfinish(self) -> None:
        """Report the operations."""
        self._send("end", **self._access.count())
        self._access.close()


def _needs_account(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return (call is not None and call.params.get("store") == "service") or "service" in getattr(item, "fixturenames", ())


def pytest_configure(config: pytest.Config) -> None:
    """Open the account that the environment names, if this pytest was started by `suite`."""
    if (pipe := os.environ.get(PIPE)) is None:
        return
    access = StorageAccess.from_environment(os.environ)
    config.stash[ACCESS] = access
    config.pluginmanager.register(Reporter(access, os.fdopen(int(pipe), "w")), "conformance-reporter")
