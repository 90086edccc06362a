"""Look-ups of host names that no tenant can hold up for the others.

The event loop's own look-ups share a few threads with everything else in the process. Names whose servers never answer keep such a thread
for half a minute each, so a handful of them would stop every look-up. Here each look-up has a thread of its own, a time limit, and counts
against its tenant until its thread has ended. A look-up that is overdue gives its place in the process to others, and its tenant is
suspected for a while: suspects share a part of the places, so that any number of them leaves the rest to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

type ResolveHost = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name (and port) as text. Raises OSError if there are none."""

SECONDS = 4.0
"""Time limit of a look-up. Behind it, the name counts as one that cannot be resolved."""
PER_TENANT = 4
"""Look-ups of one tenant at once."""
WHOLE = 64
"""Look-ups of the process at once that are not overdue. The second half is for tenants that have no other look-up."""
OF_SUSPECTS = 16
"""Look-ups, of these, of all suspected tenants together."""
MOST_THREADS = 128
"""Look-ups with those that are overdue, from which on suspected tenants begin no more."""
SUSPECTED_FOR = 60.0
"""Seconds after an overdue look-up for which its tenant is suspected."""
KNOWN_FOR = 10.0
"""Seconds for which an answer is used again."""
_MOST_KNOWN = 10_000


class NameUnresolved(OSError):
    """Raised for a name whose servers did not answer in time, or whose tenant waits for too many other names."""


async def system_lookup(host: str, port: int) -> Sequence[str]:
    """Return the addresses in the machine's order of preference.

    The look-up has a thread of its own, which the process does not wait for.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Sequence[str]] = loop.create_future()

    def finish(addresses: Sequence[str], error: OSError | UnicodeError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(addresses)
        else:
            found.set_exception(error)

    def work() -> None:
        addresses: Sequence[str] = ()
        failure: OSError | UnicodeError | None = None
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # An address with a zone is link-local, which no channel may reach.
            addresses = [str(info[4][0]) for info in infos if "%" not in str(info[4][0])]
        except (OSError, UnicodeError) as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed by now
            loop.call_soon_threadsafe(finish, addresses, failure)

    threading.Thread(target=work, name="tocsin-name-lookup", daemon=True).start()
    return await found


class NameLookups:
    """Bounded look-ups. Belongs to one event loop."""

    def __init__(
        self,
        lookup: ResolveHost = system_lookup,
        *,
        seconds: float = SECONDS,
        per_tenant: int = PER_TENANT,
        whole: int = WHOLE,
    ) -> None:
        self._lookup, self._seconds, self._per_tenant, self._whole = lookup, seconds, per_tenant, whole
        self._running: dict[str, asyncio.Task[Sequence[str]]] = {}
        """Look-ups by host, until their threads have ended."""
        self._held: Counter[str] = Counter()
        """Number of running look-ups by tenant."""
        self._active: dict[str, str] = {}
        """Tenants by host, of the running look-ups that are not overdue."""
        self._suspects: dict[str, float] = {}
        """Suspected tenants, and until when."""
        self._known: dict[str, tuple[float, Sequence[str]]] = {}
        self._freed = asyncio.Event()

    async def resolve(self, tenant: str, host: str, port: int) -> Sequence[str]:
        """Return the addresses of `host`. Raises OSError, `NameUnresolved` after the time limit."""
        until, addresses = self._known.get(host, (0.0, ()))
        if monotonic() < until:
            return addresses
        try:
            async with asyncio.timeout(self._seconds):
                # A second request for a name waits for the look-up that runs: one name never holds two threads.
                while (task := self._running.get(host)) is None:
                    if self._may_start(tenant):
                        task = self._start(tenant, host, port)
                        break
                    await self._freed.wait()
                return await asyncio.shield(task)
        except TimeoutError:
            raise NameUnresolved(f"no answer of a name server within {self._seconds:g} s") from None

    def _may_start(self, tenant: str) -> bool:
        held = self._held[tenant]
        if held >= self._per_tenant:
            return False
        if self._is_suspect(tenant):
            together = sum(map(self._is_suspect, self._active.values()))
            return together < OF_SUSPECTS and len(self._running) < MOST_THREADS
        return len(self._active) < (self._whole // 2 if held else self._whole)

    def _is_suspect(self, tenant: str) -> bool:
        return monotonic() < self._suspects.get(tenant, 0.0)

    def _start(self, tenant: str, host: str, port: int) -> asyncio.Task[Sequence[str]]:
        task = self._running[host] = asyncio.ensure_future(self._work(host, port))
        self._active[host] = tenant
        self._held[tenant] += 1

        def overdue() -> None:
            del self._active[host]
            now = monotonic()
            self._suspects = {name: until for name, until in self._suspects.items() if until > now} | {tenant: now + SUSPECTED_FOR}
            self._wake()

        limit = asyncio.get_running_loop().call_later(self._seconds, overdue)

        def ended(done: asyncio.Task[Sequence[str]]) -> None:
            limit.cancel()
            del self._running[host]
            self._active.pop(host, None)
            self._held[tenant] -= 1
            if not self._held[tenant]:
                del self._held[tenant]
            if not done.cancelled():
                done.exception()  # the caller may have gone
            self._wake()

        task.add_done_callback(ended)
        return task

    def _wake(self) -> None:
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    async def _work(self, host: str, port: int) -> Sequence[str]:
        addresses = await self._lookup(host, port)
        if addresses:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[host] = (monotonic() + KNOWN_FOR, addresses)
        return addresses

    async def close(self) -> None:
        """Stop waiting for look-ups. Their threads end by themselves."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
