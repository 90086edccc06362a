"""A file with two lines for each invocation, from which `python -m bench cost` computes the billed time."""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from devhost.worker.model import FunctionInfo


class InvocationLog:
    """Writes a line of JSON when an invocation begins and another when it ends.

    Both have `id`, `function`, `group`, `asked` and `start`; the second has `end` and `ok` too. Times are seconds since 1970. `start` is
    later than `asked` if a process had to be started first; then the first line comes when the process is there.
    """

    def __init__(self, path: Path) -> None:
        # Buffered by lines, because the file is read while the host runs.
        self._file = path.open("a", buffering=1)
        self._numbers = itertools.count(1)

    def write(self, line: dict[str, Any]) -> None:
        """Write a line."""
        self._file.write(json.dumps(line) + "\n")

    @contextmanager
    def invocation(self, function: FunctionInfo) -> Iterator["Invocation"]:
        """Write the last line when the context ends, also after an exception."""
        found = Invocation(self, {"id": next(self._numbers), "function": function.name, "group": function.group})
        try:
            yield found
        finally:
            found.ends()


class Invocation:
    """A running invocation."""

    def __init__(self, log: InvocationLog, line: dict[str, Any]) -> None:
        self._log, self._line = log, line
        self._line["asked"] = self._line["start"] = time.time()
        self.failed = True

    def starts(self) -> None:
        """Write the first line. Call this when the process that runs the invocation is ready."""
        self._line["start"] = time.time()
        self._log.write(self._line)

    def ends(self) -> None:
        """Write the line of its end."""
        self._log.write({**self._line, "end": time.time(), "ok": not self.failed})
