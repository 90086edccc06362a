"""The user's callbacks, on daemon threads of their own: they may take their time, and no beat waits for them."""

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
"""Instead of a partition: waits for no other call, but those of its own kind."""
_ALL: Final = -2

type Callback = Callable[[], object]


class CallbackThreads:
    """Runs callbacks: those of one partition one after the other in their order, those of several at once. What is put before `start`
    waits for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._lines: dict[int, deque[Callback]] = {}
        """Of each partition that has some: the calls that are not over, in their order."""
        self._behind: deque[tuple[int, Callback]] = deque()
        """What `between` holds up, itself first."""
        self._ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._urgent: queue.SimpleQueue[Callback | None] = queue.SimpleQueue()
        self._closed = False

    def start(self) -> None:
        """Start the threads."""
        for number in range(THREADS):
            threading.Thread(target=self._serve, name=f"{self._name}-calls-{number}", daemon=True).start()
        threading.Thread(target=self._serve_urgent, name=f"{self._name}-calls-urgent", daemon=True).start()

    def put(self, partition: int, call: Callback, done: Callback | None = None) -> None:
        """Run `call`, then `done`; what `call` raises is logged."""
        if partition == URGENT:
            self._urgent.put(self._logged(call, done))
        else:
            self._add(partition, self._logged(call, done))

    def between(self, call: Callback) -> None:
        """Run `call` after all that was put before, and before all that is put after."""
        self._add(_ALL, self._logged(call))

    def close(self) -> None:
        """End the threads once what was put has run; does not wait for that."""
        self._urgent.put(None)
        with self._lock:
            self._closed = True
            self._end()

    @staticmethod
    def _logged(call: Callback, done: Callback | None = None) -> Callback:
        def run() -> None:
            try:
                call()
            except BaseException:
                # Also what means to end the thread, as `sys.exit` does: others wait for it.
                log.exception("A callback of the lease keeper failed", extra={"action": "lease_callback_failed"})
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
        """Let what may run stand in its line."""
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
