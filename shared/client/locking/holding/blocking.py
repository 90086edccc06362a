"""The state of a held `Lock`, and its renewal.

`make clients` writes this file from `concurrent.py`: edit that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from ....core.errors import TocsinError
from ...errors import LockLost
from ...exchange import CallSteps
from .. import rules
from ..rules import LockAttempt, LockEnded, LockGrant

log = logging.getLogger(__name__)


class StepsRunner(Protocol):
    """Runs the steps of calls, as `Client` does."""

    def __call__[T](self, steps: CallSteps[T]) -> T: ...


class Renewal(Protocol):
    """Renews the grant of an attempt until the block ends, or the lock is lost."""

    def __call__(self, attempt: LockAttempt, /) -> None: ...


class Watch(Protocol):
    """Returns when the block ends, or the lock is lost, even if a renewal hangs. Returns true if it was lost first."""

    def __call__(self, attempt: LockAttempt, /) -> bool: ...


class Guard(Protocol):
    """Guards the state of a lock, as `threading.Condition` does."""

    def __enter__(self) -> Any: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...

    def wait(self, seconds: float, /) -> Any:
        """Wait this long, or until `notify_all`. Others may take the guard meanwhile."""

    def notify_all(self) -> None:
        """Wake up all that wait."""


class Upkeep(Protocol):
    """Runs beside the block that holds a lock."""

    def new_guard(self) -> Guard:
        """Return a guard that nobody has."""

    def begin(self, attempt: LockAttempt, renew: Renewal, watch: Watch) -> None:
        """Begin to renew and to watch the lock."""

    def lose(self) -> None:
        """Take note that the lock is lost; the guard is held."""

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> TimeoutError | None:
        """End what `begin` began. Return the error with which it has ended the block itself; takes the block's own one."""


class Holding:
    """The part of `Lock` that does not depend on what runs beside its block."""

    def __init__(self, make: Callable[[], LockAttempt], run: StepsRunner, now: rules.SteadyClock, upkeep: Upkeep) -> None:
        """make: returns a new attempt."""
        self._make, self._run, self._clock, self._upkeep = make, run, now, upkeep
        self._attempt: LockAttempt | None = None
        self._grant: LockGrant | None = None
        self._why = ""
        self._over = False
        self._process = 0
        """The process that has entered the block; 0 for none, and in a forked child."""
        self._forked = False
        self._guard = upkeep.new_guard()

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

    def __enter__(self) -> Self:
        """Wait for the lock. Raises `LockHeld` when the time is over, and the errors of every operation."""
        if self._attempt is not None:
            raise RuntimeError("this lock is in use: make another one with client.lock")
        self._own()
        self._attempt, self._process, self._forked = (attempt := self._make()), os.getpid(), False
        try:
            self._grant = self._run(rules.acquire(attempt, self._clock, random.random))
            self._why, self._over = "", False
            self._upkeep.begin(attempt, self._renew, self._watch)
        except BaseException:
            # The attempt may be in the queue, or have a grant whose answer was lost.
            self._end(attempt)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        attempt, grant = self._attempt, self._held()
        assert attempt is not None
        guard = self._own()
        with guard:
            lost = self._lost(grant) if self._is_lost(grant) else None
            self._over = True
            guard.notify_all()
        ended = self._upkeep.end(kind, error, trace)
        # A renewal that arrives after the release changes nothing: its attempt has ended.
        self._end(attempt)
        if lost is not None and (kind is None or ended is not None):
            raise lost from ended

    def _own(self) -> Guard:
        """Return what guards the state. In a forked child this is a new one: a thread that does not exist there may hold the other."""
        if self._process not in (0, os.getpid()):
            self._guard, self._process = self._upkeep.new_guard(), 0
            self._why = self._why or rules.FORKED
            self._forked = True
        return self._guard

    def _held(self) -> LockGrant:
        if self._grant is None:
            raise RuntimeError("the lock is not held: use it in a with block")
        return self._grant

    def _is_lost(self, grant: LockGrant) -> bool:
        if not self._why and self._clock() >= grant.ends:
            self._lose("its validity is over, and no renewal has succeeded")
        return bool(self._why)

    def _lose(self, why: str) -> None:
        self._why = why
        self._guard.notify_all()
        self._upkeep.lose()

    def _lost(self, grant: LockGrant) -> LockLost:
        assert self._attempt is not None
        return LockLost(self._attempt.name, grant.token, self._why)

    def _end(self, attempt: LockAttempt) -> None:
        """Release the lock. It runs out if this fails."""
        self._own()
        self._attempt = self._grant = None
        if self._forked:
            return
        with contextlib.suppress(TocsinError):
            self._run(rules.release(attempt))

    def _current(self, attempt: LockAttempt) -> LockGrant | None:
        """Return the grant while it is worth a renewal. Call with the guard held."""
        return None if self._over or self._attempt is not attempt or self._grant is None or self._is_lost(self._grant) else self._grant

    def _renew(self, attempt: LockAttempt) -> None:
        failures = 0
        while True:
            guard = self._own()
            with guard:
                grant = self._current(attempt)
                if grant is not None:
                    guard.wait(rules.renewal_pause(grant, failures, self._clock(), random.random()))
                    grant = self._current(attempt)
                if grant is None:
                    return
            found = self._try_renewal(attempt, grant)
            failures = 0 if isinstance(found, LockGrant) else failures + 1
            with self._own():
                if self._current(attempt) is None:
                    return
                if isinstance(found, LockGrant):
                    self._grant = found
                elif isinstance(found, LockEnded):
                    self._lose(found.why)

    def _try_renewal(self, attempt: LockAttempt, grant: LockGrant) -> LockGrant | LockEnded | None:
        try:
            return self._run(rules.renew(attempt, grant, self._clock))
        except TocsinError:
            return None
        except Exception:
            # For example, the client is closed. Nobody reads what is raised beside the block. The validity ends, which the holder notices.
            log.exception("Lock %s is not renewed", attempt.name, extra={"action": "lock_not_renewed", "lock": attempt.name})
            return None

    def _watch(self, attempt: LockAttempt) -> bool:
        guard = self._own()
        with guard:
            while (grant := self._current(attempt)) is not None:
                guard.wait(max(0.0, grant.ends - self._clock()))
            return not self._over and self._attempt is attempt
