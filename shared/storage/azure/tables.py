"""Tables in an Azure storage account, or in its emulator; implements `ports.Tables`. See `wire` for the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

import orjson

from ...core.clock import Clock
from ...core.errors import OutcomeUnknown
from ...core.pressure import PressureGauge
from ...core.settings import Settings
from .. import limits
from ..ports import MAX_EGT_BYTES, Applied, Insert, Merge, Op, Page, Row, RowQuery, StoringTables, WriteRefused
from ..server_time import ServerTimeEstimator
from . import account, wire
from .transport import HttpAnswer, Transport, TransportPolicy

_WRITE = {**wire.READ, "Content-Type": "application/json", "Prefer": "return-no-content"}


class AzureTables(StoringTables):
    """Tables over HTTP. Reads are retried within the policy's bounds; writes only where nothing can have been applied.

    `transactions` counts requests as the service bills them, retries included (`get`, `query`, `write`, `ensure`), and rows
    (`rows_read`, `rows_written`).
    """

    def __init__(self, transport: Transport, server_time: ServerTimeEstimator | None = None) -> None:
        """server_time: is given the answers of writes; the transport's moments must be those of its `elapsed`."""
        self._transport, self._server_time = transport, server_time
        self.transactions: Counter[str] = transport.transactions

    @property
    def bytes_read(self) -> int:
        """Bytes of the bodies of all answers."""
        return self._transport.bytes_read

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        clock: Clock | None = None,
        policy: TransportPolicy | None = None,
        server_time: ServerTimeEstimator | None = None,
        pressure: PressureGauge | None = None,
    ) -> Self:
        """With the connection string or the identity the settings name. pressure: counts the requests. Raises `UnsafeSettings`."""
        return cls(Transport(account.from_settings("table", settings), clock, policy, pressure=pressure), server_time)

    @classmethod
    def from_connection_string(cls, text: str, clock: Clock | None = None, policy: TransportPolicy | None = None) -> Self:
        """With an account key or a shared access signature. Raises `UnsafeSettings`."""
        return cls(Transport(account.from_connection_string("table", text), clock, policy))

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        """The row, or None. Raises `Rejected` or `Unavailable`."""
        limits.check_table(table)
        limits.check_key("PartitionKey", pk)
        limits.check_key("RowKey", rk)
        path = f"/{wire.entity_path(table, pk, rk)}"
        answer = await self._transport.call("get", "GET", path, headers=wire.READ, repeat=True)
        row = wire.find_row(pk, answer.status, answer.headers, answer.body)
        self.transactions["rows_read"] += row is not None
        return row

    async def query(self, query: RowQuery) -> Page:
        """One page of the partition, see `ports.RowQuery`. Raises `Rejected` or `Unavailable`."""
        asked = wire.query_parameters(query)
        answer = await self._transport.call("query", "GET", f"/{query.table}()", query=asked, headers=wire.READ, repeat=True)
        page = wire.find_page(query.pk, answer.status, answer.headers, answer.body)
        self.transactions["rows_read"] += len(page.rows)
        return page

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        """Apply all of `ops` or none, see `ports.Write`. Raises `Rejected`, `Unavailable` or `OutcomeUnknown`."""
        limits.check_table(table)
        bound = limits.check_ops(pk, ops).bound
        only = ops[0]
        if len(ops) == 1 and isinstance(only, Insert | Merge) and (row := wire.encode_row(pk, only.rk, only.props)).isascii():
            # Half the bytes of a batch of one. Not for the other verbs, which are rare. Not for other text: Azurite breaks characters
            # that cross a packet of a plain body, and stores what is left of them.
            outcome = await self._write_one(table, pk, only, row)
        else:
            body = wire.batch_body(self._transport.account.base, table, pk, ops)
            if bound > MAX_EGT_BYTES:
                limits.check_payload(len(body))
            answer = await self._transport.call("write", "POST", "/$batch", headers=wire.BATCH, body=body, repeat=False)
            outcome = wire.find_outcome(answer.status, answer.body, ops)
            self._note(answer, outcome)
        if isinstance(outcome, Applied):
            self.transactions["rows_written"] += len(ops)
        return outcome

    def _note(self, answer: HttpAnswer, outcome: Applied | WriteRefused) -> None:
        if self._server_time is not None and isinstance(outcome, Applied):
            self._server_time.note(answer.sent, answer.received, outcome.etags)

    async def _write_one(self, table: str, pk: str, op: Insert | Merge, row: bytes) -> Applied | WriteRefused:
        if isinstance(op, Insert):
            method, path, headers = "POST", f"/{table}", _WRITE
        else:
            method, path, headers = "PATCH", f"/{wire.entity_path(table, pk, op.rk)}", {**_WRITE, "If-Match": op.etag}
        answer = await self._transport.call("write", method, path, headers=headers, body=row, repeat=False)
        if answer.status not in (201, 204):
            return wire.refused(answer.status, answer.body, 1)
        etag = answer.headers.get("ETag")
        if not etag:
            raise OutcomeUnknown("the write's answer lacks an ETag")
        applied = Applied([etag])
        self._note(answer, applied)
        return applied

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create the tables that are missing. Raises `Rejected` or `Unavailable`."""
        for table in tables:
            limits.check_table(table)
        for table in tables:
            body = orjson.dumps({"TableName": table})
            answer = await self._transport.call("ensure", "POST", "/Tables", headers=_WRITE, body=body, repeat=True)
            if answer.status not in (201, 204):
                failure = wire.parse_failure(answer.status, answer.body)
                if failure.code != "TableAlreadyExists":
                    raise wire.error_of(failure, write=False)

    async def close(self) -> None:
        """Release connections."""
        await self._transport.close()
