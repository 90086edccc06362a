"""A process that starts as a worker of the host does, and measures itself: `worker.py FOLDER STAGE [MESSAGE]`.

It imports nothing of the checkout: only what is in the folder, and what is installed. Stages: `indexed`, `queue` (MESSAGE is the text of a
shard's message), `http`, `exporters`. It prints one line of JSON: what it had used at its start, and until the floor, the index and the
stage. With `BY_PACKAGE=1` it also measures the CPU time of each package's imports, which takes some time itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from importlib import _bootstrap_external  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

FOLDER, STAGE, MESSAGE = [*sys.argv[1:], "", "", ""][:3]
_THIRD_PARTY = ("azure", "google", "opentelemetry")
cpu: defaultdict[str, float] = defaultdict(float)
"""Seconds of each module's own code at its import."""


def _clock_imports() -> None:
    inside: list[float] = []
    clock = time.process_time

    def clocked(loader: Any) -> None:
        plain = loader.exec_module

        def exec_module(self: Any, module: Any) -> None:
            inside.append(0.0)
            began = clock()
            try:
                plain(self, module)
            finally:
                took = clock() - began
                cpu[module.__name__] += took - inside.pop()
                if inside:
                    inside[-1] += took

        loader.exec_module = exec_module

    for loader in (_bootstrap_external._LoaderBasics, _bootstrap_external.ExtensionFileLoader):
        clocked(loader)


def _package(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("shared", *_THIRD_PARTY) else parts[0]


def _used() -> dict[str, Any]:
    packages: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for module in list(sys.modules):
        packages[_package(module)][0] += 1
        packages[_package(module)][1] += cpu[module]
    return {
        "cpu": time.process_time(),
        "modules": len(sys.modules),
        "mb": _memory(),
        "packages": packages,
    }


def _memory() -> float:
    """Return the most memory that this process has had, in MB; 0 if /proc does not show it."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def main() -> None:
    if os.environ.get("BY_PACKAGE"):
        _clock_imports()
    found = [_used()]
    # The floor: what any app with the same library, identity and models costs.
    import azure.functions as func
    import azure.identity.aio  # noqa: F401
    import azure_functions_runtime  # noqa: F401
    import pydantic_settings  # noqa: F401

    found.append(_used())
    sys.path.insert(0, FOLDER)
    import function_app

    # A slow machine would begin to import beside the message what only later ones need.
    sys.modules["shared.app.warming"].BEGIN_AFTER = 3600.0  # type: ignore[attr-defined]
    functions = {each.get_function_name(): each.get_user_function() for each in function_app.app.get_functions()}
    found.append(_used())

    async def serve() -> None:
        if STAGE == "queue":
            await functions["fire_shard"](func.QueueMessage(id="m", body=MESSAGE.encode(), pop_receipt="p"))
        if STAGE == "http":
            headers = {"authorization": "Bearer local-demo-key", "content-type": "application/json"}
            body = b'{"delay": "PT1H", "payload": "x"}'
            url = "http://localhost/api/v1/events"
            answer = await functions["events_create"](func.HttpRequest("POST", url, headers=headers, params={}, route_params={}, body=body))
            assert answer.status_code == 201, answer.get_body()

    if STAGE == "exporters":
        function_app.exporting.start()
    else:
        asyncio.run(serve())
    found.append(_used())
    print(json.dumps(found), flush=True)
    # Exit handlers would wait for exporters that reach nobody.
    os._exit(0)


if __name__ == "__main__":
    main()
