"""Imports with the garbage collector off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 5_000
"""New objects after which the garbage collector runs. With fewer, it spends its time on objects of calls that are still being served; with
more, rows of finished shards stay in memory for longer."""


@contextmanager
def importing() -> Iterator[None]:
    """Turn the collector off during imports, exempt what they made from later collections, and set the threshold `YOUNG`.

    What is imported lives as long as the process. During the imports the collector would look at all of it again and again, which takes a
    fifth of their time. Later, each full collection would do so, and would stop the event loop.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
        if enabled:
            gc.enable()
