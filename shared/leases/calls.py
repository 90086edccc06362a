"""The user's callbacks, on daemon threads of their own: they may take their time, and no beat waits for them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

THREADS = 4


class Calls:
    """Runs callbacks: those of one partition one after the other in their order, those of several at once."""

    def __init__(self, name: str) -> None:
        self._queues: list[queue.SimpleQueue[Callable[[], object] | None]] = [queue.SimpleQueue() for _ in range(THREADS)]
        for number, waiting in enumerate(self._queues):
            threading.Thread(target=self._serve, args=(waiting,), name=f"{name}-calls-{number}", daemon=True).start()

    def put(self, partition: int, call: Callable[[], object], done: Callable[[], object] | None = None) -> None:
        """Run `call`, then `done`; what `call` raises is logged."""

        def run() -> None:
            try:
                call()
            except Exception:
                log.exception("A callback of the lease keeper failed", extra={"action": "lease_callback_failed"})
            finally:
                if done is not None:
                    done()

        self._queues[partition % THREADS].put(run)

    def close(self) -> None:
        """End the threads once what was put has run; does not wait for that."""
        for waiting in self._queues:
            waiting.put(None)

    @staticmethod
    def _serve(waiting: queue.SimpleQueue[Callable[[], object] | None]) -> None:
        while (run := waiting.get()) is not None:
            run()
