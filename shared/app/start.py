"""Start-up: what is prepared and checked before the application serves."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..core.errors import StorageError
from ..core.settings import Settings
from ..engine.stored_forms import StoredForms
from ..storage import Storage, check
from ..tenants.store import TenantDirectory, seed_local

log = logging.getLogger(__name__)


async def prepare(settings: Settings, storage: Storage, directory: TenantDirectory, forms: Sequence[StoredForms]) -> None:
    """Create what the local default needs, check storage, and read the number of its stored forms.

    forms: of the account, or of the first and the second account of a mirrored pair. Raises `UnsafeSettings`, `StorageError`.
    """
    if settings.local:
        await _ensure(storage)
    await check(storage, settings.mirror_detached)
    await _read_forms(forms)
    if settings.local and not any(each.newer for each in forms):
        await _seed(settings, storage, directory)


async def _ensure(storage: Storage) -> None:
    """Create tables and queues. One account of a mirrored pair may be unavailable."""
    if storage.second is not None:
        # The second account comes first: every write to it is also written to the first.
        try:
            await storage.second.ensure()
        except StorageError as error:
            log.warning("The second account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "second"})
    try:
        await storage.ensure()
    except StorageError as error:
        _tolerate(storage, error)


async def _seed(settings: Settings, storage: Storage, directory: TenantDirectory) -> None:
    """Create the tenant `demo`."""
    try:
        await seed_local(directory, settings)
    except StorageError as error:
        _tolerate(storage, error)


def _tolerate(storage: Storage, error: StorageError) -> None:
    """Raise the error, unless the other account of a mirrored pair may serve."""
    if storage.second is None:
        raise error
    log.warning("The first account could not be prepared: %s", error, extra={"action": "prepare_failed", "side": "first"})


async def _read_forms(forms: Sequence[StoredForms]) -> None:
    """Read each account's number. A new second account gets that of the first: processes that know no higher one may be at work."""
    number: int | None = None
    for each in forms:
        try:
            await each.begin(number)
            number = each.found
        except StorageError as error:
            if len(forms) == 1:
                raise
            # It is read before this process works on the account.
            log.debug("The number of the stored forms could not be read: %s", error, extra={"action": "stored_forms_unread"})
