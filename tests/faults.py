"""Tables in memory on which requests go wrong, take long, or are counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from shared.storage.memory import MemoryTables
from shared.storage.ports import Applied, Op, Page, Row, WriteRefused


class Request(NamedTuple):
    """One request. rk: of a `get`. options: of a `query`. ops: of a `write`."""

    kind: Literal["get", "query", "write"]
    table: str
    pk: str
    rk: str = ""
    options: Mapping[str, Any] = {}
    ops: Sequence[Op] = ()


type Perform = Callable[[], Awaitable[Any]]
type Plan = Callable[[Request, Perform], Awaitable[Any]]
"""Answers a request: calls `perform`, which carries it out, and raises or waits before, after or instead."""


class Faults:
    """Tables whose requests are answered by a plan: the given one, or the method of a class with a state of its own.

    `inner` are the tables without faults. All else is as there.
    """

    def __init__(self, inner: MemoryTables, plan: Plan | None = None) -> None:
        self.inner = inner
        if plan is not None:
            self.plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def plan(self, request: Request, perform: Perform) -> Any:
        return await perform()

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        return await self.plan(Request("get", table, pk, rk=rk), lambda: self.inner.get(table, pk, rk))

    async def query(self, table: str, pk: str, **options: Any) -> Page:
        return await self.plan(Request("query", table, pk, options=options), lambda: self.inner.query(table, pk, **options))

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        return await self.plan(Request("write", table, pk, ops=ops), lambda: self.inner.write(table, pk, ops))
