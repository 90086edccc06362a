"""Samples where the CPU time of a process goes. Python imports this module by its name at each start, if its folder is in PYTHONPATH.

SIGUSR1 begins a profile, SIGUSR2 ends it and writes it to the folder that BENCH_PROFILES names, as `PID.json`: `cpu`, seconds of CPU time,
and `layers`, the number of samples of each. A sample counts for the innermost frame of the app or of the worker's library; what the
standard library and others do counts for whoever calls them. Time in C code counts for the frame that follows it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY = 0.001
"""Seconds of CPU time between two samples."""
ROOT = str(Path(__file__).parents[3]) + os.sep
OUTSIDE = "event loop"
_LIBRARY = ("azure_functions_runtime", os.sep + "azure" + os.sep + "functions", "proxy_worker")


class Sampler:
    """The profile of this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._layers: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._began = 0.0
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, number: int, frame: FrameType | None) -> None:
        self._layers.clear()
        self._began = time.process_time()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)

    def _end(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        found = {"cpu": time.process_time() - self._began, "layers": self._layers}
        part = self._folder / f"{os.getpid()}.part"
        part.write_text(json.dumps(found))
        part.rename(part.with_suffix(".json"))

    def _sample(self, number: int, frame: FrameType | None) -> None:
        names = self._names
        while frame is not None:
            file = frame.f_code.co_filename
            layer = names.get(file)
            if layer is None:
                layer = names[file] = layer_of(file)
            if layer:
                self._layers[layer] += 1
                return
            frame = frame.f_back
        self._layers[OUTSIDE] += 1


def layer_of(file: str) -> str:
    """Return the layer of a module's file: a package of the app, `devhost`, or `worker library`; '' for what serves its callers."""
    if any(name in file for name in _LIBRARY):
        return "worker library"
    if not file.startswith(ROOT) or "site-packages" in file:
        return ""
    parts = file.removeprefix(ROOT).split(os.sep)
    if parts[0] == "devhost":
        return "devhost"
    if parts[0] != "shared" or len(parts) < 3:
        return ""
    return "/".join(parts[1:3]) if parts[1] == "scheduler" and len(parts) > 3 else parts[1]


if folder := os.environ.get("BENCH_PROFILES"):
    Sampler(Path(folder))
