"""Connection strings, signatures, tokens."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from pydantic import SecretStr

from shared.core.clock import SystemClock
from shared.core.errors import Rejected, Unavailable, UnsafeSettings
from shared.core.settings import Settings
from shared.storage import memory_storage, names, open_storage
from shared.storage.azure import account
from shared.storage.azure.account import Account, Identity, SharedKey, Signature
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import Transport, TransportPolicy
from shared.storage.ports import Insert, RowQuery

from ..conftest import KEY, Bench, FastClock, Reply


def settings(**values: Any) -> Settings:
    return Settings.model_construct(**{"storage": None, "table_uri": None, "queue_uri": None, "client_id": None, **values})


@pytest.mark.parametrize(
    ("text", "table", "queue"),
    [
        (
            f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={KEY};EndpointSuffix=core.windows.net",
            "https://acct.table.core.windows.net",
            "https://acct.queue.core.windows.net",
        ),
        (f"AccountName=acct;AccountKey={KEY}", "https://acct.table.core.windows.net", "https://acct.queue.core.windows.net"),
        (
            f"accountname=acct; accountkey={KEY};TableEndpoint=http://h:1/acct/;QueueEndpoint=http://h:2/acct",
            "http://h:1/acct",
            "http://h:2/acct",
        ),
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10002/devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1"),
    ],
)
def test_a_connection_string_names_both_endpoints(text: str, table: str, queue: str) -> None:
    assert account.from_connection_string("table", text).base == table
    found = account.from_connection_string("queue", text)
    assert found.base == queue
    assert isinstance(found.credential, SharedKey)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "AccountName=acct", f"AccountKey={KEY}", f"AccountName=acct;AccountKey=%{KEY}%", f"TableEndpoint=https://h;AccountKey={KEY}",
     f"TableEndpoint=http://h;SharedAccessSignature=sv=1&sig={KEY}", f"TableEndpoint=ftp://h;AccountName=a;AccountKey={KEY}"],
)  # fmt: skip
def test_an_unusable_connection_string_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(UnsafeSettings) as caught:
        account.from_connection_string("table", text)
    assert KEY not in str(caught.value)


def test_a_shared_access_signature_goes_along_in_the_query() -> None:
    found = account.from_connection_string("table", "TableEndpoint=https://h;SharedAccessSignature=?sv=1&sig=a%2Fb=")
    assert isinstance(found.credential, Signature)
    assert found.credential.suffix == "sv=1&sig=a%2Fb="


async def test_a_signature_is_sent_with_every_request_and_shown_in_no_error(bench: Bench) -> None:
    credential = Signature("sv=1&sig=secret%2Fsig")
    tables = AzureTables(Transport(Account(f"http://127.0.0.1:{bench.server.port}", credential), FastClock(), TransportPolicy()))
    bench.server.script(Reply(200, b'{"value": []}'), Reply(204, headers={"ETag": "e"}), *[Reply(503)] * 5)
    await tables.query(RowQuery("Table", "p"))
    await tables.write("Table", "p", [Insert("r", {})])
    with pytest.raises(Unavailable) as caught:
        await tables.get("Table", "p", "r")
    assert "sig" not in repr(caught.value)
    lines = [line for line, _, _ in bench.server.requests]
    assert lines[0].endswith("&$top=1000&sv=1&sig=secret%2Fsig HTTP/1.1")
    assert lines[1] == "POST /Table?sv=1&sig=secret%2Fsig HTTP/1.1"
    await tables.close()


async def test_the_key_is_in_no_repr() -> None:
    found = account.from_connection_string("table", f"AccountName=acct;AccountKey={KEY}")
    assert KEY not in repr(found) + repr(found.credential)


class FakeCredential:
    """Gives numbered tokens that last `lasting` seconds."""

    def __init__(self, lasting: int = 3600) -> None:
        self.lasting, self.asked, self.closed = lasting, 0, False
        self.failure: Exception | None = None

    async def get_token(self, *scopes: str, **_: Any) -> Any:
        assert scopes == ("https://storage.azure.com/.default",)
        if self.failure is not None:
            raise self.failure
        self.asked += 1
        return SimpleNamespace(token=f"secret-{self.asked}", expires_on=int(time.time()) + self.lasting)

    async def close(self) -> None:
        self.closed = True


def identified(bench: Bench, credential: Any) -> AzureTables:
    # Plain http is refused from settings only; a test may do it.
    return AzureTables(Transport(Account(f"http://127.0.0.1:{bench.server.port}", Identity(credential)), FastClock(), TransportPolicy()))


async def test_a_token_is_fetched_once_and_used_for_every_request(bench: Bench) -> None:
    credential = FakeCredential()
    tables = identified(bench, credential)
    bench.server.script(*[Reply(204, headers={"ETag": "e"})] * 3)
    for i in range(3):
        await tables.write("Table", "p", [Insert(f"{i}", {})])
    assert [headers["authorization"] for _, headers, _ in bench.server.requests] == ["Bearer secret-1"] * 3
    assert all(headers["x-ms-version"] >= "2020-12-06" for _, headers, _ in bench.server.requests)
    await tables.close()
    assert credential.closed


async def test_a_token_that_is_ending_is_renewed(bench: Bench) -> None:
    credential = FakeCredential(lasting=0)
    tables = identified(bench, credential)
    bench.server.script(*[Reply(204, headers={"ETag": "e"})] * 2)
    for i in range(2):
        await tables.write("Table", "p", [Insert(f"{i}", {})])
    assert [headers["authorization"] for _, headers, _ in bench.server.requests] == ["Bearer secret-1", "Bearer secret-2"]
    await tables.close()


async def test_a_refused_token_is_renewed_once(bench: Bench) -> None:
    tables = identified(bench, FakeCredential())
    bench.server.script(Reply(401), Reply(204, headers={"ETag": "e"}), Reply(401), Reply(401))
    await tables.write("Table", "p", [Insert("r", {})])
    with pytest.raises(Rejected, match="401"):
        await tables.write("Table", "p", [Insert("s", {})])
    assert [headers["authorization"] for _, headers, _ in bench.server.requests] == [f"Bearer secret-{n}" for n in (1, 2, 2, 3)]
    await tables.close()


async def test_no_token_means_unavailable_and_nothing_sent(bench: Bench) -> None:
    credential = FakeCredential()
    credential.failure = ClientAuthenticationError("secret response body")
    tables = identified(bench, credential)
    with pytest.raises(Unavailable, match="ClientAuthenticationError") as caught:
        await tables.write("Table", "p", [Insert("r", {})])
    assert "secret" not in str(caught.value)
    assert bench.server.requests == []
    await tables.close()


@pytest.mark.parametrize("client_id", [None, "11111111-2222-3333-4444-555555555555"])
def test_an_identity_comes_from_the_settings(client_id: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azure.identity.aio.DefaultAzureCredential", lambda **given: ("default", given))
    monkeypatch.setattr("azure.identity.aio.ManagedIdentityCredential", lambda **given: ("managed", given))
    given = settings(table_uri="https://a.table.core.windows.net/", queue_uri="https://a.queue.core.windows.net", client_id=client_id)
    for service in ("table", "queue"):
        found = account.from_settings(service, given)
        assert found.base == f"https://a.{service}.core.windows.net"
        assert isinstance(found.credential, Identity)
        expected = ("default", {}) if client_id is None else ("managed", {"client_id": client_id})
        assert found.credential._credential == expected


def test_a_token_does_not_travel_in_the_clear() -> None:
    with pytest.raises(UnsafeSettings, match="https"):
        account.from_settings("table", settings(table_uri="http://a.table.core.windows.net", queue_uri="https://b"))


def test_no_address_is_refused() -> None:
    with pytest.raises(UnsafeSettings, match="queueServiceUri"):
        account.from_settings("queue", settings(table_uri="https://a"))


async def test_opening_a_storage_sends_nothing(bench: Bench) -> None:
    base = f"http://127.0.0.1:{bench.server.port}/devstoreaccount1"
    text = f"UseDevelopmentStorage=true;TableEndpoint={base};QueueEndpoint={base}"
    storage = open_storage(Settings(storage=SecretStr(text)), SystemClock())
    assert bench.server.requests == []
    bench.server.script(Reply(204, headers={"ETag": "e"}))
    await storage.tables.write("Table", "p", [Insert("r", {})])
    assert len(bench.server.requests) == 1, "the same storage sends its first call to this server"
    await storage.close()


async def test_ensure_makes_every_named_table_and_queue() -> None:
    storage = memory_storage(FastClock())
    await storage.ensure()
    for table in names.ALL_TABLES:
        assert await storage.tables.get(table, "p", "r") is None
    for queue in names.ALL_QUEUES:
        assert await storage.queues.length(queue) == 0
    await storage.close()
