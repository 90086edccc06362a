"""Serves checkpoint turns in the app: reports, publications and revocations, what is due without them, and the views."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ...core.clock import Clock, Millis, to_text
from ...core.ids import Ids
from ...core.pressure import PressureGauge
from ...engine.async_runner import AsyncRunner
from ...engine.effects import first_rows, load_rows
from ...engine.sweeps import RUNS_A_SWEEP, SCAN_PERIOD, FleetCursor, Postponement, VisitFleet
from ...leases.rows import fleet_key
from ...storage.names import TURNS
from ...storage.ports import Delete, Row, RowQuery, Tables
from ...tenants.cache import Cached
from ...web.problem import conflict, not_found
from .. import protocol
from ..model import PublishIn, TurnReportIn
from ..protocol import GONE, StoredTurns
from ..rows import ENDED, INDEX, MAX_REPLICAS, TurnRow, ended_key, parse_turn
from ..rules import LatePublication
from ..settings import read_turn_settings
from ..timings import FIGURES_IN_FLIGHT, MAX_FIGURES, SETTINGS_AGE
from ..turns import NO_PENDING, PendingImpact, TurnSettings, TurnStep, stuck_reason
from .views import TurnFigures, figures_of, taking

log = logging.getLogger(__name__)

SCANNED: Final = "turn-scan"
RETAINED: Final = "turn-retention"
MAX_CACHED_SETTINGS: Final = 1000
"""Fleets with cached settings."""

type PendingReader = Callable[[str], Awaitable[Mapping[str, PendingImpact]]]

_WHY: Final = {
    "unknown-replica": "this run of the replica is not registered, or no longer: stop your checkpoint, then report with seq 1",
    "stale-seq": "a later report of this replica has been applied",
    "stale-term": "/term: a primary of a higher term has reported, so this replica is not the primary any more. If the higher claim was a "
    "mistake, correct the replica that made it, then POST /fleets/{fleet}/primary/forget",
    "term-conflict": "/term: another node is the primary of this term; claim a higher term",
    "too-many-replicas": f"a fleet has at most {MAX_REPLICAS} replicas; a replica that is silent for a day is removed",
}


async def nothing_pending(key: str) -> Mapping[str, PendingImpact]:
    """Report that no maintenance is due on the fleet's nodes."""
    return NO_PENDING


class CheckpointService:
    """Serves replicas, operators and timers. One per process; its only state is a cache of the fleets' settings."""

    def __init__(
        self, tables: Tables, runner: AsyncRunner, clock: Clock, ids: Ids, pending: PendingReader, pressure: PressureGauge | None = None
    ) -> None:
        """pending: reads the maintenance that is due on a fleet's nodes. pressure: of the requests of this process to storage."""
        self._tables, self._runner, self._ids, self._pending = tables, runner, ids, pending
        self._settings = Cached(self._read_settings, clock, ttl=SETTINGS_AGE, missing_ttl=0.0, size=MAX_CACHED_SETTINGS)
        self._cursor = FleetCursor(tables, clock, TURNS, INDEX)
        self._postponement = Postponement(pressure, SCAN_PERIOD, sure=RUNS_A_SWEEP)

    async def _read_settings(self, key: str) -> TurnSettings | None:
        fleet, _ = await self._runner.run(protocol.read_fleet(key))
        return read_turn_settings(fleet) if fleet is not None else None

    async def settings(self, tenant: str, fleet: str) -> TurnSettings:
        """Return the fleet's settings, at most `SETTINGS_AGE` seconds old. Raises 404, `StorageError`."""
        found = await self._settings.get(fleet_key(tenant, fleet))
        if found is None:
            raise not_found("fleet")
        return found

    async def turn_taker(self, key: str) -> str | None:
        """Return the replica that may be taking a checkpoint now, so that readers avoid it. Raises `StorageError`."""
        return taking(await self._runner.run(protocol.look(key)))

    # -- requests of replicas and operators

    async def report(self, tenant: str, fleet: str, node: str, body: TurnReportIn) -> dict[str, Any]:
        """Apply a replica's report and return the answer.

        Raises 404, 409 `unknown-replica`, `stale-seq`, `stale-term`, `term-conflict`, `too-many-replicas`, `StorageError`.
        """
        key, settings = fleet_key(tenant, fleet), await self.settings(tenant, fleet)
        pending = await self._pending(key)
        result = await self._runner.run(protocol.report(key, node, body.report(), settings, self._ids.chance(), pending))
        if isinstance(result, str):
            if result == "missing":
                raise not_found("fleet")
            raise conflict(result, _WHY[result], "replicas" if result == "too-many-replicas" else "")
        if result.over is not None:
            _log_ended(key, result.over)
        turn = result.answer.turn
        if turn is not None:
            extra = {"action": "turn_handed_out", "fleet": key, "node": node, "epoch": turn[0]}
            log.debug("%s: turn %d is handed out to %s for %d ms", key, turn[0], node, turn[1], extra=extra)
        return {
            "turn": {"epoch": turn[0], "limit_ms": turn[1]} if turn is not None else None,
            "revoked": list(result.answer.revoked),
            "report_ms": settings.report,
        }

    async def publish(self, tenant: str, fleet: str, epoch: int, body: PublishIn) -> bool:
        """Publish a checkpoint. Returns true if it has the highest sequence now. Raises 404, 409 `late`, `not-holder`, `StorageError`."""
        key, settings = fleet_key(tenant, fleet), await self.settings(tenant, fleet)
        done = await self._runner.run(protocol.publish(key, epoch, body.publication(), settings))
        extra = {"fleet": key, "node": body.node, "epoch": epoch, "sequence": body.sequence}
        if done == "missing":
            raise not_found("turn")
        if done == "not-holder":
            raise conflict("not-holder", f"turn {epoch} was not handed out to {body.node}")
        if isinstance(done, LatePublication):
            text = "%s: a checkpoint of %s arrived after the end of turn %d and does not count"
            log.info(text, key, body.node, epoch, extra={"action": "turn_late", **extra})
            raise conflict("late", f"turn {epoch} is over: its checkpoint does not count")
        log.debug("%s: %s has published turn %d", key, body.node, epoch, extra={"action": "turn_published", **extra})
        return done.is_latest

    async def revoke(self, tenant: str, fleet: str, epoch: int, note: str, author: str) -> Millis:
        """Take a turn back. Returns the largest number of milliseconds until the next can be granted.

        Raises 404, 409 `already-ended`, `StorageError`.
        """
        key = fleet_key(tenant, fleet)
        await self.settings(tenant, fleet)
        done = await self._runner.run(protocol.revoke(key, epoch, note, author))
        if done == "missing":
            raise not_found("turn")
        if done == "already-ended":
            raise conflict("already-ended", f"turn {epoch} is over")
        if done.turn is not None:
            extra = {"action": "turn_revoked", "fleet": key, "epoch": epoch, "holder": done.turn.holder, "author": author, "note": note}
            log.info("%s: turn %d of %s is revoked by %s: %s", key, epoch, done.turn.holder, author, note, extra=extra)
        return done.free_after

    async def forget_claim(self, tenant: str, fleet: str, note: str, author: str) -> None:
        """Drop the highest claim to be primary, so that any claim counts again. Safe to repeat. Raises 404, `StorageError`."""
        key = fleet_key(tenant, fleet)
        await self.settings(tenant, fleet)
        before = await self._runner.run(protocol.forget_claim(key))
        if before is not None:
            about = {"node": before.primary, "term": before.term, "author": author, "note": note}
            text = "%s: the claim of %s to be primary of term %d is dropped by %s: %s"
            log.info(text, key, before.primary, before.term, author, note, extra={"action": "turn_claim_forgotten", "fleet": key, **about})

    # -- views

    async def look(self, key: str) -> StoredTurns | None:
        """Return a fleet's turns as stored; None when no replica ever reported. Raises `StorageError`."""
        return await self._runner.run(protocol.look(key))

    async def turns(self, tenant: str, fleet: str, limit: int, before: int | None = None) -> tuple[list[dict[str, Any]], int | None]:
        """Return turns with epochs below `before`, newest first, and the `before` of the next page. Raises 404, `StorageError`."""
        key = fleet_key(tenant, fleet)
        await self.settings(tenant, fleet)
        seen = await self.look(key)
        if seen is None or not seen.view.group.turn.epoch:
            return [], None
        now = seen.view.group.turn
        found = [now] if before is None or now.epoch < before else []
        first = min(now.epoch, before) if before is not None else now.epoch
        if len(found) <= limit:
            rows, _ = await first_rows(self._tables, RowQuery(TURNS, key, first=ended_key(first - 1), end=ENDED[1]), limit + 1 - len(found))
            found += [parse_turn(row.props) for row in rows]
        return [turn_out(turn) for turn in found[:limit]], found[limit - 1].epoch if len(found) > limit else None

    async def latest(self, tenant: str, fleet: str) -> dict[str, Any]:
        """Return the checkpoint with the highest sequence. Raises 404, `StorageError`."""
        await self.settings(tenant, fleet)
        seen = await self.look(fleet_key(tenant, fleet))
        if seen is None or seen.view.latest is None:
            raise not_found("checkpoint: none has been published")
        found = seen.view.latest
        return {
            "epoch": found.epoch,
            "node": found.node,
            "sequence": found.sequence,
            "location": found.location,
            "bytes": found.size,
            "at": to_text(found.at),
        }

    # -- timers

    async def run_once(self, now: Millis) -> Counter[str]:
        """Do what is due for each fleet that has replicas.

        Counts `fleets`, `postponed` (left out because storage refuses requests), `changed`, `granted`, `ended`, `failed`.
        """

        async def prepare(rows: dict[str, Row]) -> VisitFleet:
            postponed = self._postponement.of(rows, now)

            async def visit(key: str) -> Counter[str]:
                return Counter(postponed=1) if key in postponed else await self._visit(key)

            return visit

        return await self._cursor.visit_next(SCANNED, prepare)

    async def _visit(self, key: str) -> Counter[str]:
        done = await self._runner.run(protocol.scan(key, self._ids.chance(), await self._pending(key)))
        if done == "missing":
            # Rows were written while the fleet ended.
            await self.end(key)
            return Counter(ended=1)
        if not isinstance(done, TurnStep):
            return Counter()
        if done.over is not None:
            _log_ended(key, done.over)
        return Counter(changed=1, granted=int(done.over is not None or done.group.turn.epoch == 1))

    async def retain(self, now: Millis) -> Counter[str]:
        """Remove old turns and replicas that are gone. Counts `fleets`, `removed`, `failed`."""

        async def prepare(rows: dict[str, Row]) -> VisitFleet:
            return visit

        async def visit(key: str) -> Counter[str]:
            return Counter(removed=await self._runner.run(protocol.tidy(key)))

        return await self._cursor.visit_next(RETAINED, prepare)

    async def stuck(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the problem of each fleet with stuck turns, by key. keys: the fleets to judge, in order. Raises `StorageError`."""
        found: dict[str, str] = {}
        wanted = set(keys)
        for key in await self._listed(keys[0], keys[-1] + "!") if keys else []:
            if key not in wanted:
                continue
            seen, settings = await self.look(key), await self._settings.get(key)
            if seen is not None and settings is not None and (why := stuck_reason(seen.view.group, seen.view.replicas, seen.now, settings)):
                found[key] = why
        return found

    async def figures(self) -> list[TurnFigures]:
        """Return the gauges of the first `MAX_FIGURES` fleets, by name, that have replicas. Raises `StorageError`."""
        index = await self._tables.query(RowQuery(TURNS, INDEX, limit=MAX_FIGURES))
        slots = asyncio.Semaphore(FIGURES_IN_FLIGHT)

        async def one(key: str) -> TurnFigures | None:
            async with slots:
                seen, settings = await self.look(key), await self._settings.get(key)
            return figures_of(key, seen, settings) if seen is not None and settings is not None else None

        return [each for each in await asyncio.gather(*(one(row.rk) for row in index.rows)) if each is not None]

    async def _listed(self, first: str, end: str) -> list[str]:
        return [row.rk for row in await load_rows(self._tables, RowQuery(TURNS, INDEX, first, end))]

    async def end(self, key: str) -> None:
        """End the fleet's turns and remove its rows. Safe to repeat. Raises `StorageError`."""
        await self._runner.run(protocol.end(key))
        self._settings.drop(key)

    async def forget(self, tenant: str) -> None:
        """Remove what is kept of the ended fleets of a deleted tenant. Raises `StorageError`."""
        for row in await load_rows(self._tables, RowQuery(TURNS, GONE, f"{tenant}:", f"{tenant};")):
            await self._tables.write(TURNS, GONE, [Delete(row.rk, row.etag)])


def turn_out(turn: TurnRow) -> dict[str, Any]:
    """Return a turn as the API answers it."""
    answer: dict[str, Any] = {
        "epoch": turn.epoch,
        "holder": turn.holder,
        "state": turn.state,
        "granted": to_text(turn.granted),
        "timeout_ms": turn.timeout,
        "sequence": turn.sequence or None,
    }
    more = {
        "reason": turn.reason,
        "attempts": turn.attempt if turn.attempt > 1 else 0,
        "ended": to_text(turn.ended) if turn.ended else "",
        "note": turn.note,
        "author": turn.author,
        "late": turn.late,
    }
    return answer | {name: value for name, value in more.items() if value}


def _log_ended(key: str, turn: TurnRow) -> None:
    if turn.state != "timed-out":
        return
    extra = {"action": "turn_timed_out", "fleet": key, "epoch": turn.epoch, "holder": turn.holder, "reason": turn.reason}
    log.info("%s: turn %d of %s timed out (%s)", key, turn.epoch, turn.holder, turn.reason, extra=extra)
