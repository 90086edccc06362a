"""Opens tables and queues of the account under test, under the names of a run, and counts their requests."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from devhost.conformance.naming import Run
from shared.core.clock import Clock, SystemClock
from shared.core.errors import Rejected
from shared.core.http1.connection import Connection
from shared.core.http1.full_answer import FullAnswerReader
from shared.core.http1.head import AnswerRefused
from shared.core.settings import Settings
from shared.storage import limits
from shared.storage.azure.account import Account, Identity, Service, from_connection_string
from shared.storage.azure.connections import AccountConnections, NotSent
from shared.storage.azure.queues import AzureQueues
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import Transport, TransportPolicy
from shared.storage.blocking import HttpTables
from shared.storage.ports import Applied, Message, Op, Page, Row, RowQuery, WriteRefused
from shared.storage.server_time import ServerTimeEstimator

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken

CONNECTION = "CONFORMANCE_STORAGE"
"""Environment variable with the connection string of the account."""
_ACCOUNT, _SUFFIX, _RUN = "CONFORMANCE_ACCOUNT", "CONFORMANCE_SUFFIX", "CONFORMANCE_RUN"
"""Environment variables through which a process of the same run gets the account."""
_RENEW = 600
"""Seconds before its end at which a token is replaced."""


def requests_of(counter: Mapping[str, int]) -> int:
    """Return the requests in an adapter's counters, which count rows and messages as well."""
    return sum(count for name, count in counter.items() if not name.startswith(("rows_", "messages_")))


class SharedTokens:
    """The tokens of one azure-identity credential for all adapters of this process, whatever their event loop.

    Without it, each test would ask the identity's endpoint, or start `az`, several times.
    """

    def __init__(self) -> None:
        from azure.identity import DefaultAzureCredential

        self._credential = DefaultAzureCredential()
        self._token: AccessToken | None = None

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        """Return a token that lasts for some minutes. Raises AzureError."""
        if self._token is None or self._token.expires_on - time.time() < _RENEW:
            self._token = self._credential.get_token(*scopes)
        return self._token

    def close(self) -> None:
        """Release connections."""
        self._credential.close()


class AsyncTokens:
    """`SharedTokens` for one adapter on an event loop; closing it leaves the tokens to the others."""

    def __init__(self, tokens: SharedTokens) -> None:
        self._tokens = tokens

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return await asyncio.to_thread(self._tokens.get_token, *scopes)

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@dataclass
class Traffic:
    """The traffic of adapters: milliseconds of calls by kind, answers that count as faults, and connections."""

    took: dict[str, list[float]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    """Statuses 408, 429 and 5xx, and exceptions of requests, by name."""
    retry_after: list[str] = field(default_factory=list)
    opened: int = 0
    reused: int = 0

    def note(self, kind: str, began: float) -> None:
        self.took.setdefault(kind, []).append((time.perf_counter() - began) * 1000)


class TracedConnections(AccountConnections):
    """Connections that record their traffic."""

    def __init__(self, traffic: Traffic, base: str, *, most: int, kept: float, connect: float) -> None:
        super().__init__(base, most=most, kept=kept, connect=connect)
        self._traffic = traffic

    async def exchange(self, request: bytes, seconds: float, elapsed: Callable[[], float]) -> tuple[FullAnswerReader, float]:
        try:
            reply, sent = await super().exchange(request, seconds, elapsed)
        except NotSent as error:
            self._traffic.faults[str(error)] += 1
            raise
        except (AnswerRefused, OSError) as error:
            self._traffic.faults[type(error).__name__] += 1
            raise
        if reply.status in (408, 429) or (reply.status or 0) >= 500:
            self._traffic.faults[str(reply.status)] += 1
            if (wait := reply.headers.get("Retry-After")) is not None:
                self._traffic.retry_after.append(wait)
        return reply, sent

    async def _take(self, deadline: float) -> Connection[FullAnswerReader]:
        connection = await super()._take(deadline)
        if connection.used:
            self._traffic.reused += 1
        else:
            self._traffic.opened += 1
        return connection


class TracedTransport(Transport):
    """A transport that records its traffic."""

    def __init__(self, account: Account, clock: Clock, traffic: Traffic, policy: TransportPolicy | None = None) -> None:
        super().__init__(account, clock, policy)
        self.traffic = traffic

    def _make_connections(self, policy: TransportPolicy, idle: float) -> AccountConnections:
        return TracedConnections(self.traffic, self.account.base, most=policy.connections, kept=idle, connect=policy.connect)

    async def close(self) -> None:
        await super().close()
        # The next test has another event loop.
        self._connections = None


class RunTables(AzureTables):
    """Tables of a run: each name begins with the run's. A name that no table can have is not changed, so that the adapter refuses it."""

    def __init__(self, transport: TracedTransport, prefix: str = "", server_time: ServerTimeEstimator | None = None) -> None:
        super().__init__(transport, server_time)
        self.traffic, self.wire, self._prefix = transport.traffic, transport, prefix

    def named(self, table: str) -> str:
        """Return the name in the account."""
        try:
            limits.check_table(table)
        except Rejected:
            return table
        return table if table.startswith(self._prefix) else self._prefix + table

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        began = time.perf_counter()
        row = await super().get(self.named(table), pk, rk)
        self.traffic.note("point read", began)
        return row

    async def query(self, query: RowQuery) -> Page:
        began = time.perf_counter()
        page = await super().query(query._replace(table=self.named(query.table)))
        self.traffic.note("query", began)
        return page

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        began = time.perf_counter()
        outcome = await super().write(self.named(table), pk, ops)
        self.traffic.note("write of one row" if len(ops) == 1 else "batch", began)
        return outcome

    async def ensure(self, tables: Sequence[str]) -> None:
        await super().ensure([self.named(table) for table in tables])


class RunQueues(AzureQueues):
    """Queues of a run; see `RunTables`."""

    def __init__(self, transport: TracedTransport, prefix: str = "") -> None:
        super().__init__(transport)
        self.traffic, self.wire, self._prefix = transport.traffic, transport, prefix

    def named(self, queue: str) -> str:
        """Return the name in the account."""
        try:
            limits.check_queue(queue)
        except Rejected:
            return queue
        return queue if queue.startswith(self._prefix) else self._prefix + queue

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        began = time.perf_counter()
        await super().send(self.named(queue), text, visible_in=visible_in)
        self.traffic.note("queue send", began)

    async def receive(self, queue: str, *, limit: int = 32, lease: float = 600.0) -> list[Message]:
        began = time.perf_counter()
        messages = await super().receive(self.named(queue), limit=limit, lease=lease)
        self.traffic.note("queue receive", began)
        return messages

    async def renew(self, queue: str, message: Message, *, lease: float) -> bool:
        return await super().renew(self.named(queue), message, lease=lease)

    async def delete(self, queue: str, message: Message) -> bool:
        began = time.perf_counter()
        done = await super().delete(self.named(queue), message)
        self.traffic.note("queue delete", began)
        return done

    async def length(self, queue: str) -> int:
        return await super().length(self.named(queue))

    async def ensure(self, queues: Sequence[str]) -> None:
        await super().ensure([self.named(queue) for queue in queues])


class _Settings(Settings):
    """Settings from arguments alone: those of an app in the environment must not change what is tested."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class StorageAccess:
    """One storage account: by a connection string, or by its name with the identity that azure-identity finds."""

    def __init__(self, *, connection: str = "", account: str = "", suffix: str = "core.windows.net", run: Run | None = None) -> None:
        """run: gives the prefix of all names; without it, names are not changed. Raises `UnsafeSettings`."""
        if bool(connection) == bool(account):
            raise ValueError("give either a connection string or an account")
        self.run = run
        self._connection, self._account, self._suffix = connection, account, suffix
        self._tokens: SharedTokens | None = None
        self._counters: dict[Service, list[Counter[str]]] = {"table": [], "queue": []}
        self.settings()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Return the account that `environment` describes."""
        run = Run.parse(environ[_RUN])
        if account := environ.get(_ACCOUNT):
            return cls(account=account, suffix=environ[_SUFFIX], run=run)
        return cls(connection=environ[CONNECTION], run=run)

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a process of the same run."""
        run = self.run.id if self.run else ""
        return {_ACCOUNT: self._account, _SUFFIX: self._suffix, _RUN: run, CONNECTION: self._connection}

    @property
    def identity(self) -> bool:
        """True if an identity opens the account, False for a connection string."""
        return not self._connection

    @property
    def emulated(self) -> bool:
        """True if the account is an emulator's."""
        return self.settings().emulated

    @property
    def option(self) -> str:
        """The command's option that names this account; empty for a connection string, which the environment holds."""
        return f"--account {self._account}" if self.identity else ""

    def _base(self, service: Service) -> str:
        return f"https://{self._account}.{service}.{self._suffix}"

    def address(self, service: Service) -> str:
        """Return the service's address, without any secret."""
        return self._base(service) if self.identity else from_connection_string(service, self._connection, CONNECTION).base

    def settings(self, **more: Any) -> Settings:
        """Return the settings of an app on this account. Raises `UnsafeSettings`."""
        given: dict[str, Any] = {"admin_key": secrets.token_hex(16), "signing_key": secrets.token_hex(16)}
        if self.identity:
            given |= {"table_uri": self._base("table"), "queue_uri": self._base("queue")}
        else:
            given["storage"] = self._connection
        return _Settings(**(given | more))

    def open_account(self, service: Service) -> Account:
        """Return the account, with a credential that closing leaves usable by others."""
        if not self.identity:
            return from_connection_string(service, self._connection, CONNECTION)
        return Account(self._base(service), Identity(AsyncTokens(self._shared_tokens())))

    def _shared_tokens(self) -> SharedTokens:
        if self._tokens is None:
            self._tokens = SharedTokens()
        return self._tokens

    def tables(
        self,
        traffic: Traffic | None = None,
        policy: TransportPolicy | None = None,
        *,
        server_time: ServerTimeEstimator | None = None,
        part: str = "",
    ) -> RunTables:
        """Open the tables. part: a further prefix of each name, so that one part of the run does not find the rows of another."""
        transport = TracedTransport(self.open_account("table"), SystemClock(), traffic or Traffic(), policy)
        self._counters["table"].append(transport.transactions)
        return RunTables(transport, self.run.tables + part if self.run else "", server_time)

    def queues(self, traffic: Traffic | None = None, policy: TransportPolicy | None = None) -> RunQueues:
        """Open the queues."""
        transport = TracedTransport(self.open_account("queue"), SystemClock(), traffic or Traffic(), policy)
        self._counters["queue"].append(transport.transactions)
        return RunQueues(transport, self.run.queues if self.run else "")

    def blocking_tables(self) -> HttpTables:
        """Open the tables for threads. Names are not changed."""
        if self.identity:
            found = HttpTables.with_identity(self._base("table"), self._shared_tokens())
        else:
            found = HttpTables.from_connection_string(self._connection)
        self._counters["table"].append(found.transactions)
        return found

    def count(self) -> dict[Service, int]:
        """Return the operations of all adapters so far, by service."""
        return {service: sum(map(requests_of, counters)) for service, counters in self._counters.items()}

    def add(self, operations: Mapping[Service, int]) -> None:
        """Count operations of another process."""
        for service, count in operations.items():
            self._counters[service].append(Counter(elsewhere=count))

    def close(self) -> None:
        """Release the credential."""
        if self._tokens is not None:
            self._tokens.close()
