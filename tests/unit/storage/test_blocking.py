"""The blocking adapter under faults: nothing is sent twice, and a lost answer is distinguished from a request that was never sent."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import ClientAuthenticationError

from shared.core.errors import OutcomeUnknown, Rejected, Unavailable
from shared.storage.blocking import HttpTables, IdentityTokens, run_through
from shared.storage.ports import Insert

from .conftest import KEY, Bench, Reply, connection


@pytest.fixture
def tables(idle_bench: Bench) -> HttpTables:
    return HttpTables.from_connection_string(connection(idle_bench.server.port))


async def write(tables: HttpTables, timeout: float = 60.0) -> object:
    return await asyncio.to_thread(tables.write, "Table", "p", [Insert("r", {})], timeout=timeout)


@pytest.mark.parametrize("reply", [Reply(reset=True), Reply(hang=True), Reply(202, b"half", cut=2), Reply(503), Reply(200)])
async def test_a_write_whose_answer_is_lost_is_unknown_and_sent_once(idle_bench: Bench, tables: HttpTables, reply: Reply) -> None:
    await idle_bench.server.start()
    idle_bench.server.script(reply)
    with pytest.raises(OutcomeUnknown):
        await write(tables, 1.0 if reply.hang else 60.0)
    assert len(idle_bench.server.requests) == 1
    await asyncio.to_thread(tables.close)


async def test_a_write_that_was_never_sent_is_not_unknown(tables: HttpTables) -> None:
    with pytest.raises(Unavailable):
        await write(tables)
    tables.close()


async def test_a_throttled_write_was_not_applied(idle_bench: Bench, tables: HttpTables) -> None:
    await idle_bench.server.start()
    idle_bench.server.script(Reply(429))
    with pytest.raises(Unavailable):
        await write(tables)
    assert len(idle_bench.server.requests) == 1
    tables.close()


@pytest.mark.parametrize("reply", [Reply(reset=True), Reply(hang=True), Reply(503), Reply(200, b"not json")])
async def test_a_failed_read_is_not_repeated(idle_bench: Bench, tables: HttpTables, reply: Reply) -> None:
    await idle_bench.server.start()
    idle_bench.server.script(reply)
    with pytest.raises(Unavailable):
        await asyncio.to_thread(tables.get, "Table", "p", "r", timeout=1.0 if reply.hang else 60.0)
    assert len(idle_bench.server.requests) == 1
    await asyncio.to_thread(tables.close)


async def test_missing_rights_are_rejected_and_no_key_shows(idle_bench: Bench, tables: HttpTables) -> None:
    await idle_bench.server.start()
    idle_bench.server.script(Reply(403, b"<error><code>AuthenticationFailed</code></error>"))
    with pytest.raises(Rejected) as caught:
        await write(tables)
    assert KEY not in f"{caught.value}{caught.value.__cause__}{tables!r}"
    tables.close()


class Credential:
    """Gives tokens that end `lasts` seconds from now, or fails on request."""

    def __init__(self, lasts: int) -> None:
        self.lasts, self.asked, self.fails = lasts, 0, False

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        self.asked += 1
        if self.fails:
            raise ClientAuthenticationError("no identity, and a secret in the text")
        return AccessToken(f"token{self.asked}", int(time.time()) + self.lasts)


def header(tokens: IdentityTokens, method: str) -> str:
    headers: dict[str, str] = {}
    run_through(tokens.authorize(method, "/", {}, headers, 0))
    return headers["Authorization"]


def test_a_token_is_renewed_early_by_reads_and_late_by_writes() -> None:
    credential = Credential(300)
    tokens = IdentityTokens(cast(TokenCredential, credential))
    assert [header(tokens, method) for method in ("POST", "POST", "GET", "POST")] == [f"Bearer token{n}" for n in (1, 1, 2, 2)]
    credential.fails = True
    assert header(tokens, "GET") == "Bearer token2"
    assert tokens.refused()
    with pytest.raises(Unavailable) as caught:
        header(tokens, "POST")
    assert "secret" not in str(caught.value)


def test_tokens_travel_over_https_only() -> None:
    with pytest.raises(ValueError, match="https"):
        HttpTables.with_identity("http://account.table.core.windows.net", cast(TokenCredential, Credential(300)))


def test_a_coroutine_that_waits_is_refused() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        run_through(asyncio.sleep(0))
