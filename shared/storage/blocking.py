"""Tables for threads: a small port of blocking calls, its adapter, and its twin.

`LeaseKeeper` uses it on threads of its own, so that no event loop and no executor of the application stands between a beat and the store.
Nothing is ever sent twice here, reads neither: who calls decides, and every call ends within its time-out. Bytes and their meaning are
`wire`'s, as for the asynchronous adapter. Only nodes import this module: the app does not need httpx.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

import httpx
import orjson

from ..core.errors import OutcomeUnknown, Unavailable
from . import limits
from .azure import account, wire
from .azure.account import VERSION, Account
from .bounded_calls import MOST, Bounded, Full
from .memory import MemoryTables
from .ports import MAX_EGT_BYTES, Applied, Op, Page, Row, RowQuery, WriteRefused

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

log = logging.getLogger(__name__)

_CREATE: Final = {**wire.READ, "Content-Type": "application/json", "Prefer": "return-no-content"}
_SCOPE: Final = "https://storage.azure.com/.default"
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class BlockingTables(Protocol):
    """Rows in named tables, for threads; the same meaning as `ports.Tables`. timeout: seconds that one request may take."""

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """The row, or None. Raises `Unavailable` or `Rejected`."""

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        """One page. Raises `Unavailable` or `Rejected`."""

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        """Apply all of `ops` in one transaction, or none. Raises `OutcomeUnknown`, `Unavailable` or `Rejected`."""

    def ensure(self, table: str, *, timeout: float) -> None:
        """Create the table if it is missing. Raises `Unavailable` or `Rejected`."""

    def close(self) -> None:
        """Release connections."""


class ServiceRequest(NamedTuple):
    """One request to the Table service. name: its kind, for errors and counters."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    query: Mapping[str, str] = MappingProxyType({})


def run_through[T](steps: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    steps.close()
    raise RuntimeError("it waits, and needs an event loop")


class IdentityTokens:
    """Bearer tokens of a blocking azure-identity credential. Reads renew them ten minutes before they end, writes only at the last
    minute, and no thread waits for another's renewal while the token lasts. So a heartbeat rarely waits for the identity's endpoint."""

    suffix = ""
    _for_reads, _for_writes, _last = 600, 60, 5

    def __init__(self, credential: TokenCredential) -> None:
        self._credential = credential
        self._token, self._until = "", 0
        self._lock = threading.Lock()

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        now = int(time.time())
        early = self._for_reads if method == "GET" else self._for_writes
        if now >= self._until - early and (self._lock.acquire(blocking=now >= self._until - self._last)):
            try:
                if now >= self._until - early:
                    self._renew(needed=now >= self._until - self._last)
            finally:
                self._lock.release()
        headers["Authorization"] = self._token
        headers["x-ms-date"] = account.http_date(now)

    def _renew(self, *, needed: bool) -> None:
        try:
            found = self._credential.get_token(_SCOPE)
        except Exception as error:
            # Whatever a credential raises: it may be the application's own.
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
        self._bounded = Bounded("tables")
        self._open()
        self.transactions: Counter[str] = Counter()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._http = httpx.Client(
            # A heartbeat must not wait until the application's own requests are over. httpx drops a kept connection whose socket has ended.
            limits=httpx.Limits(max_connections=MOST, max_keepalive_connections=16, keepalive_expiry=self._account.idle_seconds),
            follow_redirects=False,
            headers={"accept-encoding": "identity", "user-agent": "tocsin"},
        )

    def __repr__(self) -> str:
        return f"HttpTables({self._account.base!r})"

    @classmethod
    def from_connection_string(cls, text: str) -> Self:
        """With an account key or a shared access signature. Raises `UnsafeSettings`, without the text."""
        return cls(account.from_connection_string("table", text, "HttpTables"))

    @classmethod
    def with_identity(cls, endpoint: str, credential: TokenCredential) -> Self:
        """With a blocking credential of azure-identity. endpoint: `https://{account}.table.core.windows.net`. ValueError unless it is
        https."""
        if not endpoint.startswith("https://"):
            raise ValueError("tokens travel over https only")
        return cls(Account(endpoint, IdentityTokens(credential)))

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables.get`."""
        limits.check_table(table)
        limits.check_key("PartitionKey", pk)
        limits.check_key("RowKey", rk)
        answer = self._call(ServiceRequest("get", "GET", f"/{wire.entity_path(table, pk, rk)}", wire.READ), timeout)
        return wire.find_row(pk, answer.status_code, answer.headers, answer.content)

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        """See `BlockingTables.query`."""
        answer = self._call(ServiceRequest("query", "GET", f"/{query.table}()", wire.READ, query=wire.query_parameters(query)), timeout)
        return wire.find_page(query.pk, answer.status_code, answer.headers, answer.content)

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        """See `BlockingTables.write`."""
        limits.check_table(table)
        bound = limits.check_ops(pk, ops).bound
        body = wire.batch_body(self._account.base, table, pk, ops)
        if bound > MAX_EGT_BYTES:
            limits.check_payload(len(body))
        answer = self._call(ServiceRequest("write", "POST", "/$batch", wire.BATCH, body), timeout)
        return wire.find_outcome(answer.status_code, answer.content, ops)

    def ensure(self, table: str, *, timeout: float) -> None:
        """See `BlockingTables.ensure`."""
        limits.check_table(table)
        answer = self._call(ServiceRequest("ensure", "POST", "/Tables", _CREATE, orjson.dumps({"TableName": table})), timeout)
        if answer.status_code not in (201, 204):
            failure = wire.parse_failure(answer.status_code, answer.content)
            if failure.code != "TableAlreadyExists":
                raise wire.error_of(failure, write=False)

    def _call(self, request: ServiceRequest, timeout: float) -> httpx.Response:
        """Send one request, once. httpx bounds each step and reports best what failed; `Bounded` bounds the whole request."""
        if self._pid != os.getpid():
            # On a connection that a forked child shares, each would read the other's answers.
            self._open()
        try:
            return self._bounded.call(lambda: self._send(request, timeout), timeout)
        except Full:
            raise Unavailable(f"the {request.name} request was not sent: too many are under way") from None
        except TimeoutError:
            if request.name == "write":
                raise OutcomeUnknown("the write's answer is lost: it took too long") from None
            raise Unavailable(f"the {request.name} request took too long") from None

    def _send(self, request: ServiceRequest, timeout: float) -> httpx.Response:
        name, method, path, headers, body, query = request
        credential = self._account.credential
        send = {"x-ms-version": VERSION, **headers}
        run_through(credential.authorize(method, self._account.path + path, query, send, len(body)))
        self.transactions[name] += 1
        bound = httpx.Timeout(timeout / 2, connect=timeout / 4, pool=timeout / 4)
        try:
            answer = self._http.request(method, self._account.url(path, query), content=body or None, headers=send, timeout=bound)
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
        self._bounded.close()
        self._http.close()


class MemoryBlockingTables:
    """The twin in memory, for threads; implements `BlockingTables` over a `MemoryTables` that no other code uses meanwhile."""

    def __init__(self, tables: MemoryTables) -> None:
        self.tables = tables
        self._lock = threading.Lock()

    def get(self, table: str, pk: str, rk: str, *, timeout: float) -> Row | None:
        """See `BlockingTables.get`."""
        with self._lock:
            return run_through(self.tables.get(table, pk, rk))

    def query(self, query: RowQuery, *, timeout: float) -> Page:
        """See `BlockingTables.query`."""
        with self._lock:
            return run_through(self.tables.query(query))

    def write(self, table: str, pk: str, ops: Sequence[Op], *, timeout: float) -> Applied | WriteRefused:
        """See `BlockingTables.write`."""
        with self._lock:
            return run_through(self.tables.write(table, pk, ops))

    def ensure(self, table: str, *, timeout: float) -> None:
        """See `BlockingTables.ensure`."""
        with self._lock:
            run_through(self.tables.ensure([table]))

    def close(self) -> None:
        """Nothing to release; the rows stay."""
