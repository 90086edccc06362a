"""Runs the workers, on storage whose sweep has just run: otherwise each process would make up for it.

`build_package` makes the folder with what is deployed, in which they start.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT
from shared.app.application import Application
from shared.delivery.channels.fake import FakeReceiver
from shared.scheduler.keys import shard_tenant
from shared.scheduler.model import EventIn
from shared.scheduler.protocol.dispatch import parse_messages
from shared.storage.names import QUEUE_SHARDS

from ..tools.stage import TENANT, emulator, local_settings, receiving


def build_package(folder: Path) -> None:
    """Copy what `.funcignore` leaves of the checkout into an empty folder, and compile it. The bytecode is used without a look at its
    source, as in a package that is mounted."""
    ignored = f"--exclude-from={ROOT / '.funcignore'}"
    kept = set(_listed_files("--cached")) - set(_listed_files("--cached", "--ignored", ignored))
    for name in sorted(kept | set(_listed_files("--others", "--exclude-standard", ignored))):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)], check=True)


def _listed_files(*options: str) -> list[str]:
    found = subprocess.run(["git", "ls-files", "-z", *options], cwd=ROOT, capture_output=True, check=True, text=True)
    return [name for name in found.stdout.split("\0") if name]


STAGES: Final = ("indexed", "queue", "http", "exporters")
WITHIN: Final = 120.0
"""Seconds that a worker may take."""
_WORKER: Final = Path(__file__).with_name("worker.py")
_INSIGHTS: Final = "InstrumentationKey=00000000-0000-0000-0000-000000000001;IngestionEndpoint=http://127.0.0.1:9/"


class WorkerFailed(Exception):
    """A worker has ended with an error; the message has its last lines."""


@dataclass(frozen=True, slots=True)
class Used:
    """The cost of a part of a start. cpu: seconds. mb: memory. packages: modules and seconds of each package's imports."""

    cpu: float
    modules: int
    mb: float
    packages: dict[str, tuple[int, float]]

    def __sub__(self, before: Used) -> Used:
        packages = {
            name: (modules - before.packages.get(name, (0, 0.0))[0], cpu - before.packages.get(name, (0, 0.0))[1])
            for name, (modules, cpu) in self.packages.items()
        }
        added = {name: each for name, each in packages.items() if each[0]}
        return Used(self.cpu - before.cpu, self.modules - before.modules, self.mb - before.mb, added)


async def measure(folder: Path, rounds: int, report: Callable[[str], None], stages: Sequence[str] = STAGES) -> dict[str, Used]:
    """Return the least that each stage took in `rounds` processes: `floor`, and what each of `STAGES` takes on top of it.

    The exporters' stage is what they add to the indexed app. folder: an empty one, for the package.
    """
    build_package(folder)
    found: dict[str, Used] = {}
    with emulator() as azurite:
        async with receiving() as receiver:
            settings = local_settings(azurite.connection_string, receiver.url).model_copy(update={"express_events": 0, "wakes": "auto"})
            app = await Application.open(settings, senders={"http": FakeReceiver()})
            try:
                environment = _environment(azurite.connection_string, receiver.url)
                for stage in stages:
                    runs: list[list[Used]] = []
                    for number in range(rounds + 1):
                        report(f"{stage} {number + 1}/{rounds + 1}")
                        # A process whose last sweep is a minute ago would sweep first.
                        await app.timers.sweep()
                        message = await _message(app) if stage == "queue" else ""
                        extra = {"APPLICATIONINSIGHTS_CONNECTION_STRING": _INSIGHTS} if stage == "exporters" else {}
                        if number == rounds:
                            extra["BY_PACKAGE"] = "1"
                        runs.append(await _run(folder, stage, message, environment | extra))
                    if stage == "queue" and (await receiver.ask("count"))["count"] != rounds + 1:
                        raise WorkerFailed("a worker did not deliver the event of its message")
                    found.setdefault("floor", _least(runs, 0, 1))
                    found[stage] = _least(runs, 2, 3) if stage == "exporters" else _least(runs, 1, 3)
            finally:
                await app.close()
    return found


def _least(runs: list[list[Used]], before: int, until: int) -> Used:
    """Return what was used between two points: the least of the plain runs, and the packages as the last run measured them."""
    took = [run[until] - run[before] for run in runs]
    plain = min(took[:-1], key=lambda each: each.cpu)
    return Used(plain.cpu, plain.modules, plain.mb, took[-1].packages)


async def _message(app: Application) -> str:
    """Store an event that is due in a moment, and return the text of its shard's message."""
    event = EventIn.model_validate({"delay": "PT1S", "payload": "x"})
    await app.scheduler.ingest.one(TENANT, event, b'"x"')
    async with asyncio.timeout(WITHIN):
        while True:
            for message in await app.storage.queues.receive(QUEUE_SHARDS):
                await app.storage.queues.delete(QUEUE_SHARDS, message)
                if any(shard_tenant(each.shard) == TENANT for each in parse_messages(message.text)):
                    return message.text
            await asyncio.sleep(0.1)


async def _run(folder: Path, stage: str, message: str, environment: dict[str, str]) -> list[Used]:
    """Return what a worker had used at its start, and until the floor, the index and the stage."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_WORKER),
        str(folder),
        stage,
        message,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), WITHIN)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise WorkerFailed(f"{stage}: {errors.decode(errors='replace')[-1500:]}")
    document: list[dict[str, Any]] = json.loads(out)
    return [
        Used(each["cpu"], each["modules"], each["mb"], {name: (one, two) for name, (one, two) in each["packages"].items()})
        for each in document
    ]


def _environment(connection: str, receiver: str) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TOCSIN_", "OTEL_", "APPLICATIONINSIGHTS_", "PYTHON"))
    }
    return kept | {
        "FUNCTIONS_WORKER_RUNTIME": "python",
        "AzureWebJobsStorage": connection,
        "TocsinStorage": connection,
        "TOCSIN_LOCAL": "true",
        "TOCSIN_ADMIN_KEY": "local-admin-key",
        "TOCSIN_SIGNING_KEY": "local-signing-key",
        "TOCSIN_EGRESS_ALLOW": "localhost,127.0.0.0/8",
        "TOCSIN_RECEIVER": receiver,
    }
