"""Real agent processes against the emulator: what they say, what their hooks did, and how they die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.paths import ROOT
from tests.waiting import ended, eventually

BUSY = 180.0
"""Seconds that anything may take on a machine that does much else."""


class Agent:
    """An agent's folder, file and process. Hooks write a line each into `diary`: `name event-id`."""

    def __init__(
        self,
        folder: Path,
        imds: str,
        *,
        name: str = "n1",
        module: str = "shared.cli",
        hooks: dict[str, str] | None = None,
        python: str | Path | None = None,
    ) -> None:
        """python: an interpreter with the package installed; this one with the source tree without it."""
        self.folder, self.name, self._module = folder, name, module
        self._python, self._cwd = python or sys.executable, folder if python else ROOT
        folder.mkdir(parents=True, exist_ok=True)
        self.diary, self.state, self.boot = folder / "diary", folder / "state", folder / "boot"
        self.port = _free_port()
        self._hooks = dict.fromkeys(("prepare", "restore", "verify"), "") | (hooks or {})
        self.settings: dict[str, Any] = {
            "state": str(self.state),
            "imds": {"url": imds, "poll_seconds": 0.25},
            "maintenance": {"lead_seconds": 1800},
            "health": {"address": f"127.0.0.1:{self.port}"},
        }
        self.lines: list[dict[str, Any]] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, *options: str, environment: dict[str, str] | None = None) -> None:
        """Begin, or begin again."""
        configuration = dict(self.settings)
        configuration["hooks"] = {kind: {"command": ["sh", "-c", f"{script}\n{self._write(kind)}"]} for kind, script in self._hooks.items()}
        path = self.folder / "agent.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(configuration))
        command = [str(self._python), "-m", self._module, "agent", "--config", str(path), "--log", "json", *options]
        given = {**os.environ, **(environment or {})}
        self._process = subprocess.Popen(command, cwd=self._cwd, env=given, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _write(self, kind: str) -> str:
        # One write of a short line: lines of several processes do not mix.
        return f'echo "{kind} $TOCSIN_EVENT_ID" >> {self.diary}'

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with contextlib.suppress(ValueError):
                self.lines.append(json.loads(line))
                continue
            self.lines.append({"action": "raw", "text": line})

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the agent as a failing machine does: no signal handler runs."""
        assert self._process is not None
        self._process.kill()
        self.ended()

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        assert self._process is not None and self._reader is not None
        code = ended(self._process, "the agent", BUSY, lambda: self.lines[-8:])
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.ended()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    # -- what it did

    def said(self, action: str) -> list[dict[str, Any]]:
        return [line for line in list(self.lines) if line["action"] == action]

    def actions(self) -> list[str]:
        return [line["action"] for line in list(self.lines)]

    def did(self) -> list[str]:
        """The hooks that ended, in their order."""
        return [line.split()[0] for line in self.diary.read_text().splitlines()] if self.diary.exists() else []

    def kept(self) -> dict[str, Any]:
        """Return the content of the state file."""
        try:
            found: dict[str, Any] = json.loads((self.state / "state.json").read_bytes().partition(b"\n")[0])
        except FileNotFoundError:
            return {}
        return found

    def phases(self) -> list[str]:
        """Return the phases of the events in the state file."""
        return [record["phase"] for record in self.kept().get("events", [])]

    async def ask(self, path: str) -> tuple[int, Any]:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{self.port}{path}", timeout=BUSY)
        return answer.status_code, answer.json() if "json" in answer.headers["content-type"] else answer.text


async def until[T](look: Callable[[], T], what: str, agents: Sequence[Agent] = ()) -> T:
    """Wait until `look` finds something."""
    return await eventually(look, what, BUSY, 0.02, lambda: [agent.lines[-8:] for agent in agents])


async def drained() -> None:
    """Let the loop see that those who were killed have hung up: their connections, also those it has not even accepted, end by that."""
    for _ in range(50):
        await asyncio.sleep(0)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
