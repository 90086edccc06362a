"""The event loop that the app runs on: uvloop, as under the production worker, or asyncio's own."""

import asyncio
import importlib.util
from collections.abc import Callable, Mapping

VARIABLE = "DEVHOST_LOOP"
"""Environment variable that chooses the loop. Without it, uvloop is taken where it is installed."""
NAMES = ("uvloop", "asyncio")

type LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class LoopError(Exception):
    """The environment names a loop that is not available; the message says why."""


def chosen_loop(environ: Mapping[str, str]) -> str:
    """Return the name of the loop to run on. Raises LoopError."""
    installed = importlib.util.find_spec("uvloop") is not None
    name = environ.get(VARIABLE) or ("uvloop" if installed else "asyncio")
    if name not in NAMES:
        raise LoopError(f"{VARIABLE} must be uvloop or asyncio, not {name!r}")
    if name == "uvloop" and not installed:
        raise LoopError(f"{VARIABLE} is uvloop, which is not installed: pip install uvloop, or set {VARIABLE}=asyncio")
    return name


def loop_factory(name: str) -> LoopFactory:
    """Return the function that makes loops of that name."""
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop
