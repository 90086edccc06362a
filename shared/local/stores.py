"""The storage of a local service: in memory, in a folder, or an account."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ..core.clock import Clock
from ..core.settings import GivenSettings, Settings
from ..storage import Storage, memory_storage, open_storage
from ..storage.server_time import ServerTimeEstimator
from ..storage.sqlite.database import Database
from ..storage.sqlite.queues import FolderQueues
from ..storage.sqlite.tables import FolderTables
from . import demo


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The chosen storage: a folder, the connection string of an emulator or account, or the name of an account. All empty: in memory."""

    folder: Path | None = None
    connection: str = ""
    account: str = ""

    @property
    def emulated(self) -> bool:
        """True unless it is an account in Azure."""
        given = self.settings().get("storage")
        return given is not None and GivenSettings.model_construct(storage=SecretStr(given)).emulated

    def settings(self) -> Mapping[str, Any]:
        """Return the settings that name the storage."""
        if self.account:
            return {f"{kind}_uri": f"https://{self.account}.{kind}.core.windows.net" for kind in ("table", "queue")}
        return {"storage": self.connection or demo.SETTINGS["storage"]}


def open_store(choice: StoreChoice, settings: Settings, clock: Clock) -> Storage:
    """Open the storage. Raises `FolderRefused`, `UnsafeSettings`."""
    if choice.connection or choice.account:
        return open_storage(settings, clock)
    if choice.folder is None:
        return memory_storage(clock)
    database, times = Database(choice.folder), ServerTimeEstimator(clock)
    return Storage(FolderTables(database, clock, times), FolderQueues(database, clock), server_times=(times,))
