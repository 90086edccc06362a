"""Imports with the garbage collector off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 5_000
"""Objects that are made before the collector looks at them. Looked at more often, those of the calls that are being served take its time;
less often, rows of finished shards stay in memory."""


@contextmanager
def importing() -> Iterator[None]:
    """Turn the collector off during imports, and exempt what they made from later collections.

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
