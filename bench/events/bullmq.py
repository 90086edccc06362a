"""The herd with BullMQ and Redis, where both are to be had: `redis-server` on PATH, BullMQ by npm into a temporary folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devhost.azurite import AzuriteError, find_node, free_ports

from ..tools.stage import Receiving, payload

PACKAGES = ("bullmq@6.7.0", "ioredis@5")
SCRIPT = Path(__file__).with_name("bullmq.cjs")
FOLDER = Path(os.environ.get("TOCSIN_BENCH_BULLMQ") or Path(tempfile.gettempdir(), "tocsin-bench", "bullmq"))
"""The folder in which BullMQ is installed, once."""


@dataclass(slots=True)
class Rival:
    """The result of the search; `what` names it, or says what is missing."""

    ready: bool
    what: str
    redis: str = ""
    node: str = ""


async def prepare() -> Rival:
    """Find Redis, install BullMQ if need be. Never raises for what is missing."""
    redis = shutil.which("redis-server")
    if redis is None:
        return Rival(False, "no redis-server on PATH")
    try:
        node = find_node()
        if not all((FOLDER / "node_modules" / name.partition("@")[0]).is_dir() for name in PACKAGES):
            await asyncio.to_thread(_install)
        version = await asyncio.to_thread(_version, redis)
    except (AzuriteError, OSError, subprocess.SubprocessError, IndexError) as error:
        return Rival(False, f"BullMQ: {str(error).splitlines()[0][:100]}")
    found = (FOLDER / "node_modules" / "bullmq" / "package.json").read_text().partition('"version": "')[2].partition('"')[0]
    return Rival(True, f"BullMQ {found} on Redis {version}", redis, node)


def _version(redis: str) -> str:
    shown = subprocess.run([redis, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    return shown.split("v=")[1].split()[0]


def _install() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--prefix", str(FOLDER), "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    subprocess.run(command, capture_output=True, timeout=120, check=True)


async def herd(rival: Rival, receiver: Receiving, count: int, concurrency: int) -> dict[str, Any]:
    """Run `count` delayed jobs due at one instant, each a signed POST. Return the receiver's figures and the drain rate."""
    await receiver.ask("reset")
    (port,) = free_ports("127.0.0.1", 1)
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    redis = await asyncio.create_subprocess_exec(rival.redis, *arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        due = round((time.time() + 8) * 1000)
        worker = await asyncio.create_subprocess_exec(
            rival.node, str(SCRIPT), str(FOLDER), str(port), str(receiver.port), str(count), str(due), str(concurrency), payload(0)
        )
        try:
            arriving = asyncio.create_task(receiver.until(count, 60.0, lambda arrived: None))
            ended = asyncio.create_task(worker.wait())
            await asyncio.wait((arriving, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done() and ended.result() != 0:
                arriving.cancel()
                raise RuntimeError(f"the BullMQ worker ended with {ended.result()}")
            await arriving
            await asyncio.wait_for(ended, 30)
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
    finally:
        redis.terminate()
        await redis.wait()
    stats = await receiver.ask("stats")
    assert stats["count"] == stats["signed"] == count, stats
    return {**stats, "rate": count / (stats["max"] / 1000)}
