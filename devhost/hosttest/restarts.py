"""Checks in which the host or its worker ends while events are delivered."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from devhost.hosttest.checks import NotChecked, Target, until
from devhost.hosttest.driver import HostDriver

COUNT, FIRST, SPAN = 120, 4.0, 24.0
"""Events, seconds until the first is due, and seconds over which they are due."""
END_AFTER = 12.0
"""Seconds after the events were accepted at which something ends."""
TAKEOVER = 150.0
"""Seconds after which everything must have been delivered: 90 s are documented."""
SETTLED = 12.0
"""Seconds in which a second delivery of the last events would come."""


async def spread(target: Target, during: Callable[[], Awaitable[str]]) -> str:
    """Deliver events while something happens. Return a line about it: events that came twice, and the lateness."""
    events = await target.post_batch(COUNT, FIRST, SPAN)
    ends_at = time.monotonic() + END_AFTER
    await asyncio.sleep(END_AFTER)
    what = await during()
    arrivals = target.receiver.arrivals

    async def all_arrived() -> bool:
        return all(event in arrivals for event in events)

    await until(all_arrived, f"{sum(event not in arrivals for event in events)} of {COUNT} events", TAKEOVER)
    await asyncio.sleep(max(0.0, ends_at + FIRST + SPAN - END_AFTER + SETTLED - time.monotonic()))
    found = [arrivals[event] for event in events]
    early = [each for each in found if each[0].at < each[0].due]
    assert not early, f"{len(early)} events came early"
    late = sorted((each[-1].at - each[-1].due) / 1000 for each in found)
    twice = sum(len(each) > 1 for each in found)
    return f"{what}; {COUNT} of {COUNT}, {twice} twice, at most {late[-1]:.1f} s late, p50 {late[COUNT // 2] * 1000:.0f} ms"


async def stop_and_start(target: Target, host: HostDriver, key: str) -> str:
    """The host ends in order, and starts again."""

    async def during() -> str:
        took = await host.stop()
        return f"stopped in {took:.1f} s, started in {await host.start():.1f} s"

    return await spread(target, during)


async def kill_everything(target: Target, host: HostDriver, key: str) -> str:
    """Host and worker are killed, and the host starts again."""

    async def during() -> str:
        await host.kill()
        return f"killed, started in {await host.start():.1f} s"

    return await spread(target, during)


async def kill_the_worker(target: Target, host: HostDriver, key: str) -> str:
    """The worker is killed, and the host replaces it."""
    if not host.workers():
        raise NotChecked("no worker process was found below the host")

    async def during() -> str:
        began = time.monotonic()
        host.kill_worker()
        await host.until_it_answers()
        return f"a new worker after {time.monotonic() - began:.1f} s"

    return await spread(target, during)


async def drain(target: Target, host: HostDriver, key: str) -> str:
    """Nothing new starts after a drain, what runs ends in time, and the next host takes the rest."""
    if not key:
        raise NotChecked("set HOST_KEY to the host's master key")

    async def during() -> str:
        began = time.monotonic()
        async with aiohttp.ClientSession(headers={"x-functions-key": key}) as session:
            async with session.post(f"{target.url}/admin/host/drain") as answer:
                assert answer.status == 202, answer.status

            async def completed() -> bool:
                async with session.get(f"{target.url}/admin/host/drain/status") as answer:
                    return bool((await answer.json())["state"] == "Completed")

            await until(completed, "the end of the drain", 120.0)
        took = time.monotonic() - began
        await host.stop()
        await host.start()
        return f"drained in {took:.1f} s, started again"

    return await spread(target, during)


type RestartCheck = Callable[[Target, HostDriver, str], Awaitable[str]]

CHECKS: Final[tuple[RestartCheck, ...]] = (kill_the_worker, stop_and_start, kill_everything, drain)
