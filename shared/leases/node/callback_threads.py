"""The application's callbacks, on daemon threads of their own: a slow callback delays no heartbeat."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

THREADS: Final = 4
URGENT: Final = -1
"""Used instead of a partition number. The callback waits only for other urgent callbacks."""
_ALL: Final = -2

type Callback = Callable[[], object]


class CallbackThreads:
    """Runs callbacks: those of one partition in their order, those of several partitions in parallel.

    Callbacks that are added before `start` wait for it.
    """

    def __init__(self, name: str, about: Callable[[], dict[str, str]] = dict) -> None:
        """about: fields of log lines."""
        self._name, self._about = name, about
        self._lock = threading.Lock()
        self._lines: dict[int, deque[Callback]] = {}
        """The unfinished callbacks of each partition, in their order."""
        self._behind: deque[tuple[int, Callback]] = deque()
        """The callbacks that a call of `between` delays; its own callback comes first."""
        self._ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._urgent: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()
        self._closed = False

    def start(self) -> None:
        """Start the threads."""
        for number in range(THREADS):
            threading.Thread(target=self._serve, name=f"{self._name}-calls-{number}", daemon=True).start()
        threading.Thread(target=self._serve_urgent, name=f"{self._name}-calls-urgent", daemon=True).start()

    def put(self, partition: int, call: Callback, done: Callback | None = None) -> None:
        """Run `call`, then `done`. An exception of `call` is logged."""
        if partition == URGENT:
            self._urgent.put(self._logged(call, done))
        else:
            self._add(partition, self._logged(call, done))

    def between(self, call: Callback) -> None:
        """Run `call` after all callbacks that were added before, and before all that are added later."""
        self._add(_ALL, self._logged(call))

    def close(self) -> None:
        """End the threads after the added callbacks have run. Does not wait for that."""
        self._urgent.put(None)
        with self._lock:
            self._closed = True
            self._end()

    def _logged(self, call: Callback, done: Callback | None = None) -> Callback:
        def run() -> None:
            try:
                call()
            except BaseException:
                # This includes SystemExit: other callbacks wait for this thread.
                log.exception("A callback of the lease keeper failed", extra={"action": "lease_callback_failed", **self._about()})
            finally:
                if done is not None:
                    done()

        return run

    def _add(self, partition: int, call: Callback) -> None:
        with self._lock:
            self._behind.append((partition, call))
            self._admit()

    # -- under the lock

    def _admit(self) -> None:
        """Move callbacks that may run to the queues of their partitions."""
        while self._behind:
            partition, call = self._behind[0]
            if self._lines if partition == _ALL else _ALL in self._lines:
                return
            self._behind.popleft()
            line = self._lines.setdefault(partition, deque())
            line.append(call)
            if len(line) == 1:
                self._ready.put(partition)

    def _end(self) -> None:
        if self._closed and not self._lines:
            for _ in range(THREADS):
                self._ready.put(None)

    # -- the threads

    def _serve(self) -> None:
        while (partition := self._ready.get()) is not None:
            self._lines[partition][0]()
            with self._lock:
                line = self._lines[partition]
                line.popleft()
                if line:
                    self._ready.put(partition)
                else:
                    del self._lines[partition]
                self._admit()
                self._end()

    def _serve_urgent(self) -> None:
        while (call := self._urgent.get()) is not None:
            call()
