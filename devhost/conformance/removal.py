"""Finds and removes the tables and queues of runs. Only names with the prefix of runs are ever listed or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from xml.etree import ElementTree

import orjson

from devhost.conformance.access import StorageAccess, Traffic
from devhost.conformance.naming import QUEUES, TABLES, Run
from shared.core.errors import StorageError, Unavailable
from shared.storage.azure import wire
from shared.storage.azure.transport import HttpAnswer, Transport, TransportPolicy

ROUNDS = 5
"""Times that the names are listed: a creation that was in flight may be late."""
_AT_ONCE = 16
_GONE = 404


@dataclass
class Leftovers:
    """Names of tables and queues."""

    tables: list[str] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tables or self.queues)

    @property
    def runs(self) -> list[Run]:
        """The runs that made them, the oldest first."""
        found = {run.id: run for name in (*self.tables, *self.queues) if (run := Run.of(name)) is not None}
        return [found[key] for key in sorted(found)]

    def of(self, runs: list[Run]) -> Leftovers:
        """Return the tables and queues of these runs."""
        chosen = set(runs)
        return Leftovers([name for name in self.tables if Run.of(name) in chosen], [name for name in self.queues if Run.of(name) in chosen])


class Housekeeper:
    """Lists and removes. Opens connections of its own; close it."""

    def __init__(self, access: StorageAccess, policy: TransportPolicy | None = None) -> None:
        self._access = access
        self._tables: Transport = access.tables(Traffic(), policy).wire
        self._queues: Transport = access.queues(Traffic(), policy).wire

    async def find(self, run: Run | None = None) -> Leftovers:
        """List the tables and queues of one run, or of all runs. Raises `StorageError`."""
        tables, queues = (TABLES, QUEUES) if run is None else (run.tables, run.queues)
        found = Leftovers(await self.list_tables(tables), await self.list_queues(queues))
        # The service filters by the prefix alone, and an emulator may not filter at all.
        return Leftovers(*([name for name in names if _made_by(name, run)] for names in (found.tables, found.queues)))

    async def remove(self, found: Leftovers) -> Leftovers:
        """Remove tables and queues; return those that could not be removed."""
        assert all(Run.of(name) is not None for name in (*found.tables, *found.queues))
        limit = asyncio.Semaphore(_AT_ONCE)
        calls = [self._removed(self._tables, f"/Tables('{name}')", limit) for name in found.tables]
        calls += [self._removed(self._queues, f"/{name}", limit) for name in found.queues]
        done = await asyncio.gather(*calls)
        left = [name for name, gone in zip((*found.tables, *found.queues), done, strict=True) if not gone]
        return Leftovers([name for name in left if name in found.tables], [name for name in left if name in found.queues])

    async def remove_run(self, run: Run, rounds: int = ROUNDS) -> tuple[int, Leftovers]:
        """Remove everything of a run; return the number of tables and queues removed, and what is left.

        A name that ends in `*` is left where the account could not be listed.
        """
        removed, left = 0, Leftovers()
        for number in range(rounds):
            tables, queues = await _or_none(self.list_tables(run.tables)), await _or_none(self.list_queues(run.queues))
            unknown = Leftovers([f"{run.tables}*"] if tables is None else [], [f"{run.queues}*"] if queues is None else [])
            found = Leftovers(tables or [], queues or []).of([run])
            if not found and not unknown:
                return removed, found
            kept = await self.remove(found)
            removed += len(found.tables) + len(found.queues) - len(kept.tables) - len(kept.queues)
            left = Leftovers(kept.tables + unknown.tables, kept.queues + unknown.queues)
            if left and number + 1 < rounds:
                await asyncio.sleep(2.0**number)
        return removed, left

    async def _removed(self, transport: Transport, path: str, limit: asyncio.Semaphore) -> bool:
        async with limit:
            try:
                answer = await transport.call("remove", "DELETE", path, headers=wire.READ, repeat=True)
            except StorageError:
                return False
        return answer.status in (202, 204, _GONE)

    async def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables with this prefix. Raises `StorageError`."""
        found: list[str] = []
        query = {"$filter": f"TableName ge '{prefix}' and TableName lt '{prefix}~'"}
        following: dict[str, str] = {}
        while True:
            answer = await self._tables.call("list", "GET", "/Tables", query={**query, **following}, headers=wire.READ, repeat=True)
            _check(answer)
            found += [str(each["TableName"]) for each in orjson.loads(answer.body)["value"]]
            token = answer.headers.get("x-ms-continuation-NextTableName")
            if not token:
                return [name for name in found if name.startswith(prefix)]
            following = {"NextTableName": token}

    async def list_queues(self, prefix: str) -> list[str]:
        """Return the names of the queues with this prefix. Raises `StorageError`."""
        found: list[str] = []
        marker = ""
        while True:
            query = {"comp": "list", "prefix": prefix} | ({"marker": marker} if marker else {})
            answer = await self._queues.call("list", "GET", "/", query=query, repeat=True)
            _check(answer)
            tree = ElementTree.fromstring(answer.body)
            found += [each.text or "" for each in tree.iterfind("Queues/Queue/Name")]
            marker = tree.findtext("NextMarker") or ""
            if not marker:
                return [name for name in found if name.startswith(prefix)]

    async def close(self) -> None:
        """Release connections."""
        await self._tables.close()
        await self._queues.close()


async def _or_none(names: Awaitable[list[str]]) -> list[str] | None:
    try:
        return await names
    except StorageError:
        return None


def _made_by(name: str, run: Run | None) -> bool:
    made = Run.of(name)
    return made is not None and (run is None or made == run)


def _check(answer: HttpAnswer) -> None:
    if answer.status >= 400:
        raise wire.error_of(wire.parse_failure(answer.status, answer.body), write=False)
    if answer.status != 200:
        raise Unavailable(f"the answer to a list has status {answer.status}")


def command(access: StorageAccess, run: Run) -> str:
    """Return the command that removes the tables and queues of a run."""
    return " ".join(f"python -m devhost.conformance {access.option} --clean {run.id}".split())
