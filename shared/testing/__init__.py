"""For tests of applications that use Tocsin: "in 30 days" takes milliseconds.

    Tocsin          the whole service in this process: a client for it, `advance(days=30)`, deliveries into your own app
    BlockingTocsin  the same for tests without async
    Receiver        what takes deliveries otherwise; `Verdict` and `Received` are what it answers and remembers
    SettableClock   a clock that tests move, for code of your own that takes a clock
    memory_storage  tables and queues in memory

The service is the one that runs in production; only storage, clock and network are replaced. Needs no plugin, no network, no account,
but the service's libraries: the extra `testing` of the package.
"""

from __future__ import annotations

from ..core.optional import missing_extra

try:
    from ..core.clock import SettableClock
    from ..delivery.channels.ports import Verdict
    from ..storage import memory_storage
    from .blocking import BlockingTocsin
    from .kit import Tocsin
    from .receiver import Received, Receiver
except ModuleNotFoundError as missing:
    raise missing_extra("tocsin.testing", missing) from missing

__all__ = ["BlockingTocsin", "Received", "Receiver", "SettableClock", "Tocsin", "Verdict", "memory_storage"]
