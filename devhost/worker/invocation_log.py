"""A file with a line for each invocation: what Azure bills is counted from it (`python -m bench cost`)."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devhost.worker.model import FunctionInfo


class Invocation:
    """An invocation that runs. Times are seconds since 1970."""

    def __init__(self) -> None:
        self.asked = self.started = time.time()
        self.failed = True

    def starts(self) -> None:
        """Call when the process is there that runs it."""
        self.started = time.time()


class InvocationLog:
    """Writes a line of JSON when an invocation ends: `function`, `group`, `asked`, `start`, `end`, `ok`.

    `start` is later than `asked` if a process had to be started first.
    """

    def __init__(self, path: Path) -> None:
        # Line by line: it is read while the host runs.
        self._file = path.open("a", buffering=1)

    @contextmanager
    def invocation(self, function: FunctionInfo) -> Iterator[Invocation]:
        """Write the line when the context ends, however it does."""
        found = Invocation()
        try:
            yield found
        finally:
            line = {"function": function.name, "group": function.group, "asked": found.asked, "start": found.started}
            self._file.write(json.dumps({**line, "end": time.time(), "ok": not found.failed}) + "\n")
