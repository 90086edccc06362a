"""The app on an emulated storage of its own, on free ports, for as long as a demonstration lasts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from pathlib import Path
from typing import Any, Self

import aiohttp

from ..azurite import ROOT, Azurite, free_ports

ADMIN_KEY, DEMO_KEY = "local-admin-key", "local-demo-key"
START = 120.0
"""Seconds that the app may take to be ready on a busy machine."""


class DemoFailed(Exception):
    """The demonstration cannot go on; the message says why."""


class System:
    """`async with System(folder) as system`: Azurite and the devhost as child processes; both end with it."""

    def __init__(self, folder: Path, port: int = 0, **environment: str) -> None:
        """port: the app's, a free one for 0. environment: further settings of the app."""
        self.folder, self._environment = folder, environment
        self._azurite = Azurite(memory=True)
        self._port = port or free_ports("127.0.0.1", 1)[0]
        self._process: Process | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """The app's address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def storage(self) -> str:
        """The connection string of its storage."""
        return self._azurite.connection_string

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._azurite.__enter__)
        try:
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
            **self._environment,
        }
        with (self.folder / "app.log").open("wb") as output:
            command = (sys.executable, "-m", "devhost", "--no-receiver")
            self._process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=given, stdout=output, stderr=STDOUT, stdin=DEVNULL)
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        until = time.monotonic() + START
        while not await self._ready():
            if self._process.returncode is not None or time.monotonic() > until:
                raise DemoFailed(f"the app did not start; its log is {self.folder / 'app.log'}")
            await asyncio.sleep(0.2)

    async def _ready(self) -> bool:
        assert self._session is not None
        try:
            async with self._session.get(f"{self.url}/api/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()
        await asyncio.to_thread(self._azurite.__exit__, None, None, None)

    async def call(self, method: str, path: str, body: Any = None, key: str = DEMO_KEY) -> Any:
        """A call of the API, `path` behind `/api/v1/`; its answer as data. Raises `DemoFailed` unless it is a success."""
        assert self._session is not None
        headers = {"authorization": f"Bearer {key}"}
        async with self._session.request(method, f"{self.url}/api/v1/{path}", json=body, headers=headers) as answer:
            found = await answer.json(content_type=None)
            if answer.status >= 300:
                raise DemoFailed(f"{method} {path}: {answer.status} {found}")
            return found
