"""Reads all pages of a list of the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


async def read_pages(get: Callable[[str], Awaitable[Any]], path: str) -> list[list[dict[str, Any]]]:
    """Return the items of each page. get: reads a path and returns an answer with `status` and `json()`."""
    found: list[list[dict[str, Any]]] = []
    cursor = ""
    while True:
        answer = await get(path + (f"{'&' if '?' in path else '?'}cursor={cursor}" if cursor else ""))
        assert answer.status == 200, answer
        page = answer.json()
        found.append(page["items"])
        cursor = page["next"]
        if cursor is None:
            return found
