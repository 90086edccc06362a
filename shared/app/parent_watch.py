"""Notices that the Functions host of this worker process has ended.

A host that is killed leaves its workers behind. The orphan gets no more work, and what it has begun would go on beside the workers of the
next host. The operating system gives an orphan another parent, and that shows it.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

WORKER_OPTIONS: Final = ("--functions-worker-id", "--workerid")
"""Options with which the host starts a worker. Other parents, such as a shell that ends before its devhost, mean nothing."""
LOOK_EVERY: Final = 1.0
"""Seconds between two looks at the parent."""


def started_by_host(arguments: Sequence[str]) -> bool:
    """Return True if a Functions host has started the process with this command line."""
    return any(argument.partition("=")[0].lower() in WORKER_OPTIONS for argument in arguments)


class ParentWatch:
    """Knows the host that started this process. Made when the app is loaded, because a later parent would be the wrong one."""

    def __init__(self, arguments: Sequence[str], parent: Callable[[], int] = os.getppid) -> None:
        """arguments: the process's own command line."""
        self._parent, self._first = parent, parent() if started_by_host(arguments) else 0

    @property
    def host_ended(self) -> bool:
        """True if the host started this process and has ended."""
        # In the host's own pid namespace the host may be process 1, with which everything ends.
        return self._first > 1 and self._parent() != self._first

    async def wait(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Return when the host has ended."""
        while not self.host_ended:
            await sleep(LOOK_EVERY)
