"""A dead and a silent endpoint beside good ones, with real HTTP and Azurite: what they cost the others."""

from __future__ import annotations

import asyncio

import pytest

from ..conftest import System, Tenant, eventually, free_ports
from ..receiver import silent

BAD, GOOD, SPAN = 300, 200, 10
"""Events of each bad endpoint, due at one instant; events of each good one; seconds over which those are due."""


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {"TOCSIN_SHARD_EVENTS": "20"}


def lateness_figures(tenant: Tenant, path: str) -> tuple[int, int, int]:
    """p50, p99 and max of the lateness, in milliseconds."""
    late = sorted(hit.late_ms for hit in tenant.receiver.at(path))
    return late[len(late) // 2], late[int(0.99 * len(late))], late[-1]


async def play(one: Tenant, other: Tenant, turn: str) -> None:
    """Post everything, and wait for the good ones' events."""
    good = [{"delay": f"PT{15 + number * SPAN / GOOD:.3f}S", "payload": 1, "channel": "good"} for number in range(GOOD)]
    bad = [{"delay": "PT15S", "payload": 1, "channel": f"{name}-{turn}"} for name in ("dead", "slow") for _ in range(BAD)]
    await asyncio.gather(one.api.batch(bad), other.api.batch(good))
    await one.api.batch(good)
    for tenant in (one, other):
        await eventually(lambda tenant=tenant: len(tenant.receiver.at(f"/{tenant.name}/{turn}")) >= GOOD, "the good ones' events", 90)


@pytest.mark.long
async def test_bad_endpoints_delay_no_other_channel(system: System) -> None:
    receiver = system.receiver
    async with system.tenant() as one, system.tenant() as other:
        for turn in ("good", "bad"):
            for tenant in (one, other):
                url = receiver.url(f"/{tenant.name}/{turn}")
                await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/good", {"type": "http", "url": url})
            dead = f"http://127.0.0.1:{free_ports('127.0.0.1', 1)[0]}/" if turn == "bad" else receiver.url("/dead")
            await one.admin.call("PUT", f"tenants/{one.name}/channels/dead-{turn}", {"type": "http", "url": dead})
            await one.channel(f"slow-{turn}", f"/slow-{turn}")
            if turn == "bad":
                receiver.script("/slow-bad", silent)
            await play(one, other, turn)
            for tenant, whose in ((one, "the same tenant's"), (other, "another tenant's")):
                print(f"{turn}: p50, p99, max of {whose} lateness in ms: {lateness_figures(tenant, f'/{tenant.name}/{turn}')}")
        assert len(receiver.at("/dead")) == len(receiver.at("/slow-good")) == BAD
        assert len(receiver.at("/slow-bad")) < 64
        shown = (await one.admin.get(f"tenants/{one.name}/channels/dead-bad")).json()
        assert shown["flow"]["breaker"] in ("open", "half-open")
        for name in ("dead-bad", "slow-bad"):
            await one.admin.call("DELETE", f"tenants/{one.name}/channels/{name}")
