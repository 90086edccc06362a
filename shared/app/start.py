"""Start-up: what is prepared and checked before the application serves."""

from __future__ import annotations

import logging

from ..core.errors import StorageError
from ..core.settings import Settings
from ..storage import Storage, check
from ..tenants.store import TenantDirectory, seed_local

log = logging.getLogger(__name__)


async def prepare(settings: Settings, storage: Storage, directory: TenantDirectory) -> None:
    """Create what the local default needs, then check storage. Raises `UnsafeSettings`, `StorageError`."""
    if settings.local:
        await _prepare_local(settings, storage, directory)
    await check(storage, settings.mirror_detached)


async def _prepare_local(settings: Settings, storage: Storage, directory: TenantDirectory) -> None:
    """Create tables, queues and the tenant `demo`. One account of a mirrored pair may be unavailable."""
    if storage.second is not None:
        # The second account comes first: every write to it is also written to the first.
        try:
            await storage.second.ensure()
        except StorageError as error:
            log.warning("The second account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "second"})
    try:
        await storage.ensure()
        await seed_local(directory, settings)
    except StorageError as error:
        if storage.second is None:
            raise
        log.warning("The first account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "first"})
