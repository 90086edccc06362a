"""Tables for threads: a small port of blocking calls, its adapter, and its twin.

`LeaseKeeper` uses it on threads of its own, so that no event loop and no executor of the application stands between a beat and the store.
Nothing is ever sent twice here, reads neither: who calls decides, and every call ends within its time-out. Bytes and their meaning are
`wire`'s, as for the asynchronous adapter. Only nodes import this module: the app does not need httpx.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import httpx
import orjson

from ..errors import OutcomeUnknown, Unavailable
from . import account, limits, wire
from .account import VERSION, Account
from .memory import MemoryTables
from .ports import MAX_EGT_BYTES, MAX_PAGE, Applied, Op, Page, Refused, Row

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

log = logging.getLogger(__name__)

_READ = {"Accept": wire.ACCEPT, "DataServiceVersion": "3.0", "x-ms-version": VERSION}
_BATCH = {**_READ, "Content-Type": wire.BATCH_TYPE}
_NEXT_PK, _NEXT_RK = "x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"
_SCOPE: Final = "https://storage.azure.com/.default"
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# Azurite closes idle connections after 5 s; to write on a closed one is an unknown outcome.
_IDLE = 4.0


class BlockingTables(Protocol):
    """Rows in named tables, for threads; the same meaning as `ports.Tables`. timeout: seconds that one request may take."""

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """The row, or None. Raises `Unavailable` or `Rejected`."""

    def query(self, table: str, pk: str, *, first: str, end: str, cursor: str | None, timeout: float) -> Page:
        """One page of the rows with `first` <= key < `end`. Raises `Unavailable` or `Rejected`."""

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | Refused:
        """Apply all of `ops` in one transaction, or none. Raises `OutcomeUnknown`, `Unavailable` or `Rejected`."""

    def close(self) -> None:
        """Release connections."""


def run_through[T](steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    steps.close()
    raise RuntimeError("it waits, and needs an event loop")


class Tokens:
    """Bearer tokens of a blocking azure-identity credential. Reads renew them ten minutes before they end, writes only at the last
    minute, so that a beat hardly ever waits for the identity's endpoint."""

    suffix = ""
    _for_reads, _for_writes = 600, 60

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential
        self._token, self._until = "", 0
        self._lock = threading.Lock()

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        now = int(time.time())
        early = self._for_reads if method == "GET" else self._for_writes
        if now >= self._until - early and (self._lock.acquire(blocking=now >= self._until - self._for_writes)):
            try:
                if now >= self._until - early:
                    self._renew(needed=now >= self._until - self._for_writes)
            finally:
                self._lock.release()
        headers["Authorization"] = self._token
        headers["x-ms-date"] = account.http_date(now)

    def _renew(self, *, needed: bool) -> None:
        from azure.core.exceptions import AzureError

        try:
            found = self._credential.get_token(_SCOPE)
        except AzureError as error:
            if not needed:
                log.debug("A token could not be renewed yet: %s", type(error).__name__, extra={"action": "token_kept"})
                return
            # Its text can quote the request to the identity endpoint.
            raise Unavailable(f"no token for the storage account: {type(error).__name__}") from None
        self._token, self._until = f"Bearer {found.token}", found.expires_on

    def refused(self) -> bool:
        self._until = 0
        return True

    async def close(self) -> None:
        pass


class HttpTables:
    """Tables over HTTP, for threads; implements `BlockingTables`. Threads may share one. `transactions` counts requests by kind."""

    def __init__(self, at: Account) -> None:
        self._account = at
        self._http = httpx.Client(
            limits=httpx.Limits(max_connections=16, max_keepalive_connections=8, keepalive_expiry=_IDLE),
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "tocsin"},
        )
        self.transactions: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"HttpTables({self._account.base!r})"

    @classmethod
    def from_connection_string(cls, text: str) -> Self:
        """With an account key or a shared access signature. Raises `UnsafeSettings`, without the text."""
        return cls(account.from_connection_string("table", text))

    @classmethod
    def with_identity(cls, endpoint: str, credential: TokenCredential) -> Self:
        """With a blocking credential of azure-identity. endpoint: `https://{account}.table.core.windows.net`. ValueError unless it is
        https."""
        if not endpoint.startswith("https://"):
            raise ValueError("tokens travel over https only")
        return cls(Account(endpoint, Tokens(credential)))

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables.get`."""
        limits.check_table(table)
        limits.check_key("PartitionKey", pk)
        limits.check_key("RowKey", rk)
        answer = self._call("get", "GET", f"/{wire.entity_path(table, pk, rk)}", {}, _READ, b"", timeout)
        if answer.status_code != 200:
            failure = wire.parse_failure(answer.status_code, answer.content)
            if wire.is_missing(failure):
                return None
            raise wire.error_of(failure, write=False)
        try:
            return wire.decode_row(pk, orjson.loads(answer.content), wire.parse_date(answer.headers["Date"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable("the answer to a get cannot be read") from None

    def query(self, table: str, pk: str, *, first: str, end: str, cursor: str | None, timeout: float) -> Page:
        """See `BlockingTables.query`."""
        limits.check_table(table)
        limits.check_key("PartitionKey", pk)
        query = {"$filter": wire.filter_text(pk, first, end, ()), "$top": str(MAX_PAGE)}
        if cursor is not None:
            try:
                at = orjson.loads(cursor)
                query |= {"NextPartitionKey": at[0], "NextRowKey": at[1]}
            except (ValueError, TypeError, KeyError, IndexError):
                raise limits.bad_cursor() from None
        answer = self._call("query", "GET", f"/{table}()", query, _READ, b"", timeout)
        if answer.status_code != 200:
            raise wire.error_of(wire.parse_failure(answer.status_code, answer.content), write=False)
        try:
            read_at = wire.parse_date(answer.headers["Date"])
            rows = wire.decode_page(pk, answer.content, read_at)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unavailable("the answer to a query cannot be read") from None
        more = answer.headers.get(_NEXT_PK)
        return Page(rows, orjson.dumps([more, answer.headers.get(_NEXT_RK, "")]).decode() if more is not None else None, read_at)

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | Refused:
        """See `BlockingTables.write`."""
        limits.check_table(table)
        bound = limits.check_ops(pk, ops).bound
        body = wire.batch_body(self._account.base, table, pk, ops)
        if bound > MAX_EGT_BYTES:
            limits.check_payload(len(body))
        answer = self._call("write", "POST", "/$batch", {}, _BATCH, body, timeout)
        if answer.status_code == 202:
            return wire.batch_reply(answer.content, ops)
        if answer.status_code < 400:
            raise OutcomeUnknown(f"the write's answer has status {answer.status_code}")
        return wire.refusal(wire.parse_failure(answer.status_code, answer.content), len(ops))

    def _call(
        self, name: str, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes, timeout: float
    ) -> httpx.Response:
        """One request, once. httpx bounds each of its phases; half of the time each for connecting and answering bound the whole."""
        credential = self._account.credential
        text = "&".join(f"{key}={wire.percent(value)}" for key, value in query.items())
        if credential.suffix:
            text = f"{text}&{credential.suffix}" if text else credential.suffix
        url = f"{self._account.base}{path}?{text}" if text else self._account.base + path
        send = dict(headers)
        run_through(credential.authorize(method, self._account.path + path, query, send, len(body)))
        self.transactions[name] += 1
        bound = httpx.Timeout(timeout / 2, connect=timeout / 4, pool=timeout / 4)
        try:
            answer = self._http.request(method, url, content=body or None, headers=send, timeout=bound)
        except _UNSENT as error:
            raise Unavailable(f"the {name} request was not sent: {type(error).__name__}") from None
        except httpx.HTTPError as error:
            # The cause stays out: its text may quote the address, and with it a signature.
            if name == "write":
                raise OutcomeUnknown(f"the write's answer is lost: {type(error).__name__}") from None
            raise Unavailable(f"the {name} request failed: {type(error).__name__}") from None
        if answer.status_code == 401:
            credential.refused()
        return answer

    def close(self) -> None:
        """Release connections."""
        self._http.close()


class MemoryBlockingTables:
    """The twin in memory, for threads; implements `BlockingTables` over a `MemoryTables` that nobody else uses meanwhile."""

    def __init__(self, tables: MemoryTables) -> None:
        self.tables = tables
        self._lock = threading.Lock()

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables.get`."""
        with self._lock:
            return run_through(self.tables.get(table, pk, rk))

    def query(self, table: str, pk: str, *, first: str, end: str, cursor: str | None, timeout: float) -> Page:
        """See `BlockingTables.query`."""
        with self._lock:
            return run_through(self.tables.query(table, pk, first=first, end=end, cursor=cursor))

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | Refused:
        """See `BlockingTables.write`."""
        with self._lock:
            return run_through(self.tables.write(table, pk, ops))

    def close(self) -> None:
        """Nothing to release; the rows stay."""
