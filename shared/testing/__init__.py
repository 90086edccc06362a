"""Test kit for applications that use Tocsin: "in 30 days" takes milliseconds.

    Tocsin          the whole service in this process: a client for it, `advance(days=30)`, deliveries into your own app
    BlockingTocsin  the same for tests without async
    Receiver        receives deliveries that no app of yours receives; it answers `Verdict` and records `Received`
    SettableClock   a clock that tests move, for your own code that takes a clock
    memory_storage  tables and queues in memory

The service is the one that runs in production; only storage, clock and network are replaced. The kit needs no plugin, network or
account, only the service's libraries: install the package's extra `testing`.
"""

from __future__ import annotations

from ..core.errors import missing_extra

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
