"""The app on an emulated storage of its own, for as long as a demonstration lasts."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from ..azurite import Azurite, check_port
from .running import Child, DemoFailed

ADMIN_KEY, DEMO_KEY = "local-admin-key", "local-demo-key"
HOST: Final = "127.0.0.1"
START: Final = 120.0
"""Seconds that the app may take to be ready on a busy machine."""


class System:
    """`async with System(folder) as system`: Azurite and the devhost as child processes; both end with it. `url`: the app's address."""

    def __init__(self, folder: Path, port: int = 0, **environment: str) -> None:
        """port: the app's, a free one for 0. environment: further settings of the app."""
        self.folder, self.url = folder, ""
        self._port, self._environment = port, environment
        self._azurite = Azurite(memory=True)
        self._app = Child(folder / "app.log")
        self._session: aiohttp.ClientSession | None = None

    @property
    def storage(self) -> str:
        """The connection string of its storage."""
        return self._azurite.connection_string

    @property
    def log(self) -> Path:
        """The log of the app, in which an incident id of an answer is found."""
        return self._app.log

    async def __aenter__(self) -> Self:
        """Raises `DemoFailed`, and `AzuriteError` when a port is taken or Azurite is not there."""
        if self._port:
            check_port(HOST, self._port, "the app", "PORT")
        try:
            await self._azurite.start_async()
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        given = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PORT": str(self._port),
            "AZURITE": "off",
            "TocsinStorage": self.storage,
            "AzureWebJobsStorage": self.storage,
            "TOCSIN_ADMIN_KEY": ADMIN_KEY,
            "TOCSIN_SIGNING_KEY": "local-signing-key",
            "TOCSIN_LOCAL": "true",
            "DEVHOST_GRACE": "1",
            **self._environment,
        }
        await self._app.start("devhost", "--host", HOST, "--no-receiver", environment=given)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        until = time.monotonic() + START
        while not await self._ready():
            if self._app.ended or time.monotonic() > until:
                raise DemoFailed(f"the app did not start: {self._app.last_words()}")
            await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        assert self._session is not None
        # The address comes from its own log: another program may answer at a port.
        found = re.search(r"^devhost ready (\S+)$", self._app.log.read_text(errors="replace"), re.MULTILINE)
        if found is None:
            return False
        self.url = found[1]
        try:
            async with self._session.get(f"{self.url}/api/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        await self._app.stop()
        await asyncio.to_thread(self._azurite.stop)

    async def call(self, method: str, path: str, body: Any = None, key: str = DEMO_KEY) -> Any:
        """A call of the API, `path` behind `/api/v1/`; its answer as data. Raises `DemoFailed` unless it is a success."""
        assert self._session is not None
        headers = {"authorization": f"Bearer {key}"}
        try:
            async with self._session.request(method, f"{self.url}/api/v1/{path}", json=body, headers=headers) as answer:
                found = await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DemoFailed(f"{method} {path}: {str(error) or 'no answer'}") from error
        if answer.status >= 300:
            raise DemoFailed(f"{method} {path}: {answer.status} {found}")
        return found
