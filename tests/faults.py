"""Tables in memory on which requests go wrong, take long, or are counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

from shared.storage.memory import MemoryTables
from shared.storage.ports import Get, Op, RowQuery, TableRequest, WrappedTables, Write


class Request(NamedTuple):
    """One request as plans see it. rk: of a `get`. first: of a `query`. ops: of a `write`."""

    kind: Literal["get", "query", "write"]
    table: str
    pk: str
    rk: str = ""
    first: str = ""
    ops: Sequence[Op] = ()


type Perform = Callable[[], Awaitable[Any]]
type Plan = Callable[[Request, Perform], Awaitable[Any]]
"""Answers a request: calls `perform`, which carries it out, and raises or waits before, after or instead."""


class Faults(WrappedTables):
    """Tables whose requests are answered by a plan: the given one, or the method of a class with a state of its own.

    `inner` are the tables without faults. All else is as there.
    """

    def __init__(self, inner: MemoryTables, plan: Plan | None = None) -> None:
        super().__init__(inner)
        if plan is not None:
            self.plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def plan(self, request: Request, perform: Perform) -> Any:
        return await perform()

    async def perform(self, request: TableRequest) -> Any:
        return await self.plan(_seen(request), lambda: self.inner.perform(request))


def _seen(request: TableRequest) -> Request:
    match request:
        case Get(table, pk, rk):
            return Request("get", table, pk, rk=rk)
        case RowQuery(table, pk, first):
            return Request("query", table, pk, first=first)
        case Write(table, pk, ops):
            return Request("write", table, pk, ops=ops)
