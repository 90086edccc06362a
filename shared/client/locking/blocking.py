"""`Lock`: a lock of a `Client`, renewed by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .holding.blocking import Holding, Renewal, StepsRunner, Watch
from .rules import LockAttempt


class Lock(Holding):
    """A lock that `Client.lock` returns: held from the start of a `with` block to its end, and renewed meanwhile by a thread.

    ::

        with client.lock("nightly") as lock:
            for row in rows:
                lock.check()                       # raises LockLost
                write(row, token=lock.token)

    The block is not interrupted when the lock is lost: only the program knows where it can stop. So it calls `check` before each step that
    no other process may do at the same time. The end of the block raises `LockLost` too, unless it raises something else. Each `with`
    block is an attempt of its own. A lock cannot be entered twice at a time. After `os.fork` it belongs to the parent alone: the child's
    `check` and the end of its block raise `LockLost`, and change nothing.
    """

    def __init__(
        self,
        make: Callable[[], LockAttempt],
        run: StepsRunner,
        on_lost: Callable[[], None] | None,
        clock: Callable[[], float],
    ) -> None:
        """make: returns a new attempt. clock: seconds that advance while the machine sleeps."""
        super().__init__(make, run, clock, _Threads(on_lost))


class _Threads:
    """Renews and watches the lock on threads, which end by themselves when the block has ended."""

    def __init__(self, on_lost: Callable[[], None] | None) -> None:
        self._on_lost = on_lost

    def new_guard(self) -> threading.Condition:
        return threading.Condition()

    def begin(self, attempt: LockAttempt, renew: Renewal, watch: Watch) -> None:
        for work in (renew, self._teller(watch, self._on_lost)) if self._on_lost is not None else (renew,):
            threading.Thread(target=work, args=(attempt,), name=f"tocsin lock {attempt.name}", daemon=True).start()

    @staticmethod
    def _teller(watch: Watch, on_lost: Callable[[], None]) -> Renewal:
        def watch_and_tell(attempt: LockAttempt) -> None:
            if watch(attempt):
                on_lost()

        return watch_and_tell

    def lose(self) -> None:
        """Do nothing: the watching thread wakes up and calls `on_lost`."""

    def end(self, *_: object) -> None:
        """Do nothing: the threads have been woken up."""
