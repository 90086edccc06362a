"""The tokens of a process: kept, renewed in time, asked for once at a time, and failures that delay nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shared.core.clock import SettableClock
from shared.delivery.entra.tokens import AHEAD, MARGIN, MOST_TOKENS, QUIET, EntraTokens, FetchedToken, NoToken, read_token

from .jwts import CLIENT, jwt

NOW = 1_800_000_000_000


class Endpoint:
    """Gives numbered tokens of an hour. `gate` holds the answers back."""

    def __init__(self, clock: SettableClock) -> None:
        self.clock, self.asked, self.down = clock, Counter[str](), False
        self.gate = asyncio.Event()
        self.gate.set()

    async def fetch(self, audience: str) -> FetchedToken:
        self.asked[audience] += 1
        number = self.asked[audience]
        await self.gate.wait()
        if self.down:
            raise NoToken("the identity endpoint answered 500")
        return FetchedToken(f"{audience}#{number}", self.clock.now() + 3_600_000)


class World:
    def __init__(self) -> None:
        self.clock = SettableClock(NOW)
        self.endpoint = Endpoint(self.clock)
        self.tokens = EntraTokens(self.endpoint.fetch, self.clock, chance=lambda: 0.5)


@pytest.fixture
async def world() -> World:
    return World()


async def test_one_request_serves_all_who_ask_and_those_after_them(world: World) -> None:
    world.endpoint.gate.clear()
    asking = [asyncio.create_task(world.tokens.get("api://a")) for _ in range(20)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    world.endpoint.gate.set()
    assert set(await asyncio.gather(*asking[1:])) == {"api://a#1"}
    assert await world.tokens.get("api://a") == "api://a#1"
    assert await world.tokens.get("api://b") == "api://b#1"
    assert world.endpoint.asked == {"api://a": 1, "api://b": 1}


async def test_a_token_is_renewed_before_its_end_without_a_wait(world: World) -> None:
    assert await world.tokens.get("api://a") == "api://a#1"
    await world.clock.advance(3600 - AHEAD + 1)
    world.endpoint.gate.clear()
    assert await world.tokens.get("api://a") == "api://a#1"
    assert await world.tokens.get("api://a") == "api://a#1"
    world.endpoint.gate.set()
    await world.clock.advance(0)
    assert await world.tokens.get("api://a") == "api://a#2"
    assert world.endpoint.asked["api://a"] == 2


async def test_a_failed_renewal_harms_nobody_until_the_token_ends(world: World) -> None:
    await world.tokens.get("api://a")
    world.endpoint.down = True
    await world.clock.advance(3600 - AHEAD + 1)
    for _ in range(3):
        assert await world.tokens.get("api://a") == "api://a#1"
        await world.clock.advance(0)
    assert world.endpoint.asked["api://a"] == 2, "it waits after a failure"
    await world.clock.advance(AHEAD - MARGIN)
    with pytest.raises(NoToken, match="answered 500"):
        await world.tokens.get("api://a")


async def test_a_failure_is_told_at_once_for_a_while_and_to_its_audience_alone(world: World) -> None:
    world.endpoint.down = True
    for _ in range(5):
        with pytest.raises(NoToken, match="answered 500"):
            await world.tokens.get("api://a")
    assert world.endpoint.asked["api://a"] == 1
    world.endpoint.down = False
    assert await world.tokens.get("api://b") == "api://b#1"
    await world.clock.advance(QUIET * 1.3)
    assert await world.tokens.get("api://a") == "api://a#2"


async def test_an_audience_that_hangs_delays_no_other(world: World) -> None:
    world.endpoint.gate.clear()
    hanging = asyncio.create_task(world.tokens.get("api://a"))
    await world.clock.advance(0)
    world.endpoint.gate = asyncio.Event()
    world.endpoint.gate.set()
    assert await world.tokens.get("api://b") == "api://b#1"
    assert not hanging.done()
    await world.tokens.close()
    with pytest.raises(NoToken, match="is stopping"):
        await hanging


async def test_the_memory_is_bounded_and_keeps_what_is_used(world: World) -> None:
    await world.tokens.get("api://used")
    for number in range(MOST_TOKENS + 10):
        await world.tokens.get(f"api://{number}")
        await world.tokens.get("api://used")
    assert world.endpoint.asked["api://used"] == 1
    await world.tokens.get("api://0")
    assert world.endpoint.asked["api://0"] == 2


async def test_an_expired_token_is_a_failure(world: World) -> None:
    async def expired(audience: str) -> FetchedToken:
        return FetchedToken("t", world.clock.now())

    with pytest.raises(NoToken, match="has expired"):
        await EntraTokens(expired, world.clock).get("api://a")


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"access_token": "x"}', "cannot be read"),
        (b'{"access_token": "x", "expires_on": "soon"}', "cannot be read"),
        (b'{"access_token": "a.b.c\\r\\nx: y", "expires_on": "1800000000"}', "no JWT"),
        (b'{"access_token": 7, "expires_on": "1800000000"}', "no JWT"),
        (b'{"access_token": "a.b.c", "expires_on": "1800000000"}', "no readable JWT"),
        (b'{"access_token": "%b", "expires_on": "1800000000"}' % jwt("https://vault.azure.net").encode(), "another audience"),
    ],
)
def test_answers_without_a_token_for_the_audience_are_failures(body: bytes, cause: str) -> None:
    with pytest.raises(NoToken, match=cause):
        read_token(body, "api://orders", CLIENT)


def test_a_token_is_read_with_its_end() -> None:
    token = jwt("api://orders")
    body = b'{"access_token": "%b", "expires_on": "1800000000", "token_type": "Bearer"}' % token.encode()
    assert read_token(body, "api://orders", CLIENT) == FetchedToken(token, 1_800_000_000_000)
