"""The services that every part of the scheduler needs that stores, serves or changes shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from ..core.ids import Ids
from ..core.settings import Settings
from ..delivery.notices import Notify
from ..engine.async_runner import AsyncRunner
from ..storage.ports import Tables
from ..tenants.store import TenantDirectory
from .key_lines.service import KeyLines
from .mirror.unmirrored import Mirror
from .shard.event_clock import EventClock
from .wakes.service import Wakes


class ShardServices(NamedTuple):
    """One for each process and account.

    searchable: returns the names of the labels that a tenant searches by. lines: the queues of events with one ordering key. wakes:
    requested before each shard's wake-up. mirror: for mirrored events. directory: tenants, their channels
    and settings. notify: sends a notice to a tenant.
    """

    runner: AsyncRunner
    tables: Tables
    clock: EventClock
    ids: Ids
    settings: Settings
    counters: Counter[str]
    searchable: Callable[[str], Awaitable[Collection[str]]]
    lines: KeyLines
    wakes: Wakes
    mirror: Mirror
    directory: TenantDirectory
    notify: Notify
