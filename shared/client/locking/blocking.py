"""`Lock`: a lock of a `Client`, renewed by a thread."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
from collections.abc import Callable
from typing import Protocol, Self

from ...core.errors import TocsinError
from ..errors import LockLost
from ..exchange import CallSteps
from . import rules
from .rules import LockAttempt, LockEnded, LockGrant

log = logging.getLogger(__name__)


class StepsRunner(Protocol):
    """Runs the steps of calls, as `Client` does."""

    def __call__[T](self, steps: CallSteps[T]) -> T: ...


class Lock:
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
        self._make, self._run, self._on_lost, self._clock = make, run, on_lost, clock
        self._attempt: LockAttempt | None = None
        self._grant: LockGrant | None = None
        self._why = ""
        self._over = False
        self._process = 0
        """The process that has entered the block; 0 for none, and in a forked child."""
        self._forked = False
        self._changed = threading.Condition()

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier grant of this lock. Raises RuntimeError outside the `with` block."""
        return self._held().token

    @property
    def lost(self) -> bool:
        """True as soon as another caller may get the lock, and then until the end of the block."""
        with self._own():
            return self._is_lost(self._held())

    @property
    def until(self) -> float:
        """The end of the grant if no renewal succeeds, in seconds of the client's clock; by default `tocsin.core.clock.steady`."""
        return self._held().ends

    def remaining(self) -> float:
        """Return the seconds for which nobody else can get the lock if no renewal succeeds. 0 if it is lost."""
        with self._own():
            grant = self._held()
            return 0.0 if self._is_lost(grant) else max(0.0, grant.ends - self._clock())

    def check(self) -> None:
        """Raise `LockLost` if the lock is lost."""
        with self._own():
            grant = self._held()
            if self._is_lost(grant):
                raise self._lost(grant)

    def _own(self) -> threading.Condition:
        """Return what guards the state. In a forked child this is a new one: a thread that does not exist there may hold the other."""
        if self._process not in (0, os.getpid()):
            self._changed, self._process = threading.Condition(), 0
            self._why = self._why or rules.FORKED
            self._forked = True
        return self._changed

    def __enter__(self) -> Self:
        """Wait for the lock. Raises `LockHeld` when the time is over, and the errors of every operation."""
        if self._attempt is not None:
            raise RuntimeError("this lock is in use: make another one with client.lock")
        self._attempt, self._process, self._forked = (attempt := self._make()), os.getpid(), False
        try:
            self._grant = self._run(rules.acquire(attempt, self._clock, random.random))
            self._why, self._over = "", False
            for work in (self._renew, self._watch) if self._on_lost is not None else (self._renew,):
                threading.Thread(target=work, args=(attempt,), name=f"tocsin lock {attempt.name}", daemon=True).start()
        except BaseException:
            # The attempt may be in the queue, or have a grant whose answer was lost.
            self._own()
            self._attempt = self._grant = None
            self._release(attempt)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        attempt, grant = self._attempt, self._held()
        assert attempt is not None
        with self._own():
            lost = self._lost(grant) if self._is_lost(grant) else None
            self._over = True
            self._changed.notify_all()
        # A renewal that arrives after the release changes nothing: its attempt has ended.
        self._release(attempt)
        self._attempt = self._grant = None
        if lost is not None and kind is None:
            raise lost

    def _held(self) -> LockGrant:
        if self._grant is None:
            raise RuntimeError("the lock is not held: use it in a with block")
        return self._grant

    def _is_lost(self, grant: LockGrant) -> bool:
        if not self._why and self._clock() >= grant.ends:
            self._why = "its validity is over, and no renewal has succeeded"
            self._changed.notify_all()
        return bool(self._why)

    def _lost(self, grant: LockGrant) -> LockLost:
        assert self._attempt is not None
        return LockLost(self._attempt.name, grant.token, self._why)

    def _release(self, attempt: LockAttempt) -> None:
        if self._forked:
            return
        # The grant runs out if this fails.
        with contextlib.suppress(TocsinError):
            self._run(rules.release(attempt))

    def _current(self, attempt: LockAttempt) -> LockGrant | None:
        """Return the grant while it is worth a renewal. Call with `_changed` held."""
        return None if self._over or self._attempt is not attempt or self._grant is None or self._is_lost(self._grant) else self._grant

    def _renew(self, attempt: LockAttempt) -> None:
        failures = 0
        while True:
            with self._changed:
                grant = self._current(attempt)
                if grant is not None:
                    self._changed.wait(rules.renewal_pause(grant, failures, self._clock(), random.random()))
                    grant = self._current(attempt)
                if grant is None:
                    return
            found = self._try_renewal(attempt, grant)
            failures = 0 if isinstance(found, LockGrant) else failures + 1
            with self._changed:
                if self._current(attempt) is None:
                    return
                if isinstance(found, LockGrant):
                    self._grant = found
                elif isinstance(found, LockEnded):
                    self._why = found.why
                self._changed.notify_all()

    def _try_renewal(self, attempt: LockAttempt, grant: LockGrant) -> LockGrant | LockEnded | None:
        try:
            return self._run(rules.renew(attempt, grant, self._clock))
        except TocsinError:
            return None
        except Exception:
            # For example, the client is closed. Nobody reads what a thread raises. The validity ends, which the holder notices.
            log.exception("Lock %s is not renewed", attempt.name, extra={"action": "lock_not_renewed", "lock": attempt.name})
            return None

    def _watch(self, attempt: LockAttempt) -> None:
        """Call `on_lost` when the lock is lost, even if a renewal hangs."""
        with self._changed:
            while (grant := self._current(attempt)) is not None:
                self._changed.wait(max(0.0, grant.ends - self._clock()))
            if self._over or self._attempt is not attempt:
                return
        assert self._on_lost is not None
        self._on_lost()
