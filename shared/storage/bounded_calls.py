"""Calls that end in time whatever they wait for, on daemon threads that are left to themselves when they do not come back.

A socket's time-outs bound each of its steps, but not their sum, nor the look-up of a name, nor an identity endpoint that hangs.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

MOST: Final = 256
"""Calls under way at once, those that were given up included: more than an application has threads."""

type _Waiting = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class Full(Exception):
    """Too many calls are under way: this one was not begun."""


class Bounded:
    """Runs calls on threads that it keeps for the next ones, `most` at once. Threads may share it; a forked child has new ones."""

    def __init__(self, name: str, most: int = MOST) -> None:
        self._name, self._most = name, most
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # A signal's handler may come in between, on the same thread, and call too.
        self._lock = threading.RLock()
        self._idle: list[_Waiting] = []
        self._threads = 0
        self._closed = False

    def call[T](self, call: Callable[[], T], timeout: float) -> T:
        """Return or raise what `call` does. Raises `TimeoutError` after `timeout` seconds, when it may go on and have effects still, and
        `Full`."""
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            try:
                waiting = self._idle.pop()
            except IndexError:
                waiting = self._new()
        done: Future[T] = Future()
        waiting.put((done, call))
        return done.result(timeout)

    def _new(self) -> _Waiting:
        if self._threads >= self._most:
            raise Full from None
        self._threads += 1
        waiting: _Waiting = queue.SimpleQueue()
        threading.Thread(target=self._serve, args=(waiting,), name=self._name, daemon=True).start()
        return waiting

    def close(self) -> None:
        """End the threads, each once its call has ended."""
        with self._lock:
            self._closed = True
            for waiting in self._idle:
                waiting.put(None)
            self._idle = []

    def _serve(self, waiting: _Waiting) -> None:
        while (found := waiting.get()) is not None:
            done, call = found
            result, failed = None, None
            try:
                result = call()
            except BaseException as error:
                failed = error
            with self._lock:
                if not self._closed:
                    self._idle.append(waiting)
            # The thread is free before its caller goes on, which finds it for the next call.
            if failed is None:
                done.set_result(result)
            else:
                done.set_exception(failed)
            # Nothing of it is kept alive until the next call.
            del found, done, call, result, failed
            if self._closed:
                break
        with self._lock:
            self._threads -= 1
