"""Look-ups of names: name servers that never answer delay only their own tenant, and only for a short time."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.delivery import name_lookups
from shared.delivery.channels.http import HttpSender
from shared.delivery.circuit_breaker import is_failure
from shared.delivery.name_lookups import NameLookups, NameUnresolved, system_lookup
from tests.texts import assert_text

from .conftest import Listen, http_target, make_delivery, make_settings

BLACK_HOLES = [f"hole{number}.example" for number in range(40)]


class NameServers:
    """Name servers of which some never answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.silent = asyncio.Event()

    async def lookup(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host.startswith("hole"):
            await self.silent.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["127.0.0.1"]


@pytest.fixture
async def servers() -> NameServers:
    return NameServers()


@pytest.fixture
async def names(servers: NameServers) -> AsyncIterator[NameLookups]:
    # Long enough for a slow machine to take a good answer.
    it = NameLookups(servers.lookup, seconds=0.5)
    yield it
    await it.close()


async def failures(names: NameLookups, tenant: str, hosts: Sequence[str]) -> list[Any]:
    return await asyncio.gather(*(names.resolve(tenant, host, 443) for host in hosts), return_exceptions=True)


async def test_silent_name_servers_hold_up_their_own_tenant_alone(names: NameLookups, servers: NameServers) -> None:
    found = await failures(names, "hostile", BLACK_HOLES)
    assert all(isinstance(error, NameUnresolved) for error in found)
    assert len(servers.asked) == name_lookups.PER_TENANT, "the rest never got a thread"
    assert await names.resolve("other", "good.example", 443) == ["127.0.0.1"]
    with pytest.raises(NameUnresolved):
        await names.resolve("hostile", "good2.example", 443)
    servers.silent.set()
    assert await names.resolve("hostile", "good2.example", 443) == ["127.0.0.1"], "its threads have ended"


def asks(names: NameLookups, tenants: int, round_: str) -> list[asyncio.Task[Any]]:
    """Ask for four names without an answer for each tenant."""
    return [
        asyncio.create_task(names.resolve(f"t{tenant}", f"hole-{round_}-{tenant}-{number}.example", 443))
        for tenant in range(tenants)
        for number in range(name_lookups.PER_TENANT)
    ]


async def test_sixteen_tenants_with_silent_name_servers_leave_room_from_the_first_moment(servers: NameServers) -> None:
    names = NameLookups(servers.lookup, seconds=60)
    asked = asks(names, 16, "first")
    for _ in range(10):
        await asyncio.sleep(0)
    assert await names.resolve("other", "good.example", 443) == ["127.0.0.1"]
    assert {host.split("-")[2] for host in servers.asked[:-1]} == {str(tenant) for tenant in range(16)}, "each has a look-up"
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await names.close()


async def test_any_number_of_suspected_tenants_leaves_the_rest_to_others(names: NameLookups, servers: NameServers) -> None:
    crowd = 40
    await asyncio.gather(*asks(names, crowd, "first"), return_exceptions=True)
    for number in range(6):
        asked = asks(names, crowd, f"later{number}")
        await asyncio.sleep(0)
        assert await names.resolve("other", f"good{number}.example", 443) == ["127.0.0.1"]
        await asyncio.gather(*asked, return_exceptions=True)
    holes = [host for host in servers.asked if host.startswith("hole")]
    assert len(holes) <= name_lookups.MOST_THREADS


async def test_a_tenant_is_suspected_for_a_while_only(names: NameLookups, servers: NameServers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookups, "OF_SUSPECTS", 0)
    await failures(names, "one", ["hole.example"])
    servers.silent.set()
    with pytest.raises(NameUnresolved):
        await names.resolve("one", "good.example", 443)
    later = name_lookups.monotonic() + name_lookups.SUSPECTED_FOR
    monkeypatch.setattr(name_lookups, "monotonic", lambda: later)
    assert await names.resolve("one", "good.example", 443) == ["127.0.0.1"]


async def test_one_name_is_looked_up_once_at_a_time(names: NameLookups, servers: NameServers) -> None:
    found = await failures(names, "one", ["hole.example"] * 20) + await failures(names, "two", ["hole.example"] * 20)
    assert len(found) == 40 and servers.asked == ["hole.example"]


async def test_a_tenant_that_joins_a_name_is_not_charged_for_it(names: NameLookups, servers: NameServers) -> None:
    await failures(names, "hostile", BLACK_HOLES[:4])
    await failures(names, "other", BLACK_HOLES[:4])
    assert await names.resolve("other", "good.example", 443) == ["127.0.0.1"]


async def test_an_answer_is_used_again_and_a_failure_is_not(names: NameLookups, servers: NameServers) -> None:
    for _ in range(3):
        await names.resolve("one", "good.example", 443)
    servers.silent.set()
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await names.resolve("one", "hole.example", 443)
    assert servers.asked == ["good.example", "hole.example", "hole.example"]


async def test_blocked_threads_of_the_system_do_not_stop_the_loops_own_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six names stopped all look-ups of a process with two cores, because the executor of the loop had six threads."""
    release, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: str, *rest: Any, **more: Any) -> Any:
        if host.startswith("hole"):
            release.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    names = NameLookups(system_lookup, seconds=0.5)
    try:
        for tenant in range(8):
            assert all(isinstance(error, NameUnresolved) for error in await failures(names, f"t{tenant}", BLACK_HOLES[tenant * 4 :][:4]))
        assert "127.0.0.1" in await names.resolve("other", "localhost", 443)
        assert await asyncio.get_running_loop().run_in_executor(None, lambda: "free") == "free"
    finally:
        release.set()
        await names.close()


async def test_a_delivery_to_such_a_name_fails_and_counts_for_the_breaker(
    listen: Listen, servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NameLookups.__init__, "__kwdefaults__", dict(NameLookups.__init__.__kwdefaults__ or {}) | {"seconds": 0.5})
    receiver = await listen()
    sender = HttpSender(make_settings("127.0.0.0/8, localhost"), lookup=servers.lookup)
    lost = await asyncio.gather(*(sender.send(http_target(f"https://{host}/x?k=v"), make_delivery()) for host in BLACK_HOLES))
    [seventh] = [verdict.error for verdict in lost if "hole7." in (verdict.error or "")]
    assert_text("delivery.name-server-silent", seventh, url="https://hole7.example:443", seconds=0.5)
    assert all(is_failure(verdict.outcome, verdict.status) for verdict in lost)
    target = http_target(f"http://localhost:{receiver.port}/")
    other = type(target)("other", target.name, target.spec, target.secrets)
    assert (await sender.send(other, make_delivery())).outcome == "delivered"
    await sender.close()
