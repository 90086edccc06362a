"""Waits in real time until a condition is true."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any


async def eventually(condition: Callable[[], Any], what: str, deadline: float = 180.0, pause: float = 0.05) -> Any:
    """Return the first true value of the condition, which may be a coroutine function. Fail after `deadline` seconds."""
    ends_at = time.monotonic() + deadline
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < ends_at, f"still waiting for: {what}"
        await asyncio.sleep(pause)
