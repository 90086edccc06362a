"""1,000 tenants: lateness on Azurite beside what its one thread allows, and on storage that answers in 8 ms.

Each tenant has shards of its own, so an event takes a dozen requests that it shares with no other. On a small machine they fill Azurite's
one thread long before the app is at its limit; events then come ever later, and after 25 s requests are refused. So the rate on Azurite is
one that leaves the thread some room. A bare client then plays the same requests at the same times against a fresh Azurite, and posts each
event to the receiver as soon as it has what a delivery needs. What comes after a delivery is played too: it loads the thread for all.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from devhost.azurite import development_connection
from shared.core.clock import Millis, to_text
from shared.scheduler.timings import WAKE_EARLY

from ..report import Figure
from ..tools import machine
from ..tools.recorder import Recording, Request, recorded
from ..tools.replay import Errand, in_order, plan, play
from ..tools.stage import Host, Run, devhost, emulator, payload, receiving
from . import slow_storage
from .sparse_tenants import LEAD, Streamed, TenantPosts, lateness_of, make_tenants, stream

COUNT = 1000
RATE = 100
"""Events a second, where storage bears them."""
LIMIT = 100.0
"""Greatest lateness in milliseconds."""
FACTOR = 1.3
"""Greatest time for what a delivery needs, as a multiple of the bare client's."""
BUSY = 0.8
"""Greatest share of Azurite's thread that the load takes: beyond it, each request waits for many others."""
TRIAL = (10.0, 10.0, (5.0, 8.0))
"""Events a second, seconds, and lead of the load that measures the thread's time for an event."""
STARTS = (WAKE_EARLY - 1000) / 1000
"""Seconds before an event in which its owner begins at the latest: its message is visible up to a second later than it is asked for."""
MASTER_KEY = "bench"
_TENANT = re.compile(rb"(?<![a-z])t\d{4}(?!\d)")
_SHARD = re.compile(rb"(?<![0-9a-z])[0-9a-z]{16}(?![0-9a-z])")
_GATE = re.compile(rb"^GET [^ ]*RowKey='gate'")
_CLAIMED = re.compile(rb'"RowKey":"e(\d{3})","state":"firing"')


@dataclass(frozen=True, slots=True)
class Recorded:
    """A load with its requests to storage.

    rate: events a second. before: the requests that made the app's tables, and then the tenants. began: monotonic time of the load's start.
    due: the due time of each event. ports: of the emulator's queues and tables.
    """

    streamed: Streamed
    rate: int
    before: tuple[Sequence[Request], Sequence[Request]]
    requests: Sequence[Request]
    began: float
    due: Mapping[str, Millis]
    ports: tuple[int, int]


class Bound(NamedTuple):
    """The bare client's figures. stats: lateness. thread: milliseconds of the emulator's thread for an event. same: share of the answers
    that had the recorded status. needed, ours: p99 of the milliseconds for what a delivery needs, by it and by the app.
    """

    stats: Mapping[str, Any]
    thread: float
    same: float
    needed: float
    ours: float


async def measure(run: Run) -> list[Figure]:
    """Measure the app, then the bare client, then the app on slow storage."""
    seconds = run.pick(60.0, 20.0)
    run.report_progress(f"{COUNT:,} tenants on Azurite", 0, 3)
    ours = await _record(seconds)
    run.report_progress("the same requests by a bare client", 1, 3)
    bound = await _play(ours)
    run.report_progress("storage that answers in 8 ms", 2, 3)
    return [*figures(ours, bound), await slow_storage.lateness(COUNT, RATE, seconds, LEAD, LIMIT)]


def figures(ours: Recorded, bound: Bound) -> list[Figure]:
    """Return the figures on Azurite."""
    stats, mine = bound.stats, ours.streamed
    note = f"p50 {stats['p50']:.1f}, p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; {len(ours.requests) / mine.count:.1f} requests and "
    note += f"{bound.thread:.1f} ms of Azurite's thread an event; {bound.same:.1%} answered as before"
    needed = f"to store, take, load and claim an event: {bound.ours:.0f} ms, the bare client {bound.needed:.0f} ms (p99)"
    return [
        mine.figure(lateness_of(COUNT, ours.rate), LIMIT),
        Figure("  lateness p99 of the same by a bare client", stats["p99"], "ms", note=note, details=stats),
        Figure("  time for what a delivery needs, times the bare client's", bound.ours / bound.needed, "", "<=", FACTOR, needed),
        Figure(f"  of Azurite's one thread, {RATE} a second would take", mine.thread * RATE / 10, "%"),
    ]


def rate_for(thread: float) -> int:
    """Return the events a second that fill the allowed share of the emulator's thread. thread: its milliseconds for an event."""
    return max(1, min(RATE, int(1000 * BUSY / thread)))


async def _record(seconds: float) -> Recorded:
    """Play the load with the app, behind a relay that records its requests."""
    requests = (recording := Recording()).requests
    async with AsyncExitStack() as stack:
        azurite = stack.enter_context(emulator())
        queue, table = [await stack.enter_async_context(recorded(port, recording)) for port in (azurite.queue, azurite.table)]
        receiver = await stack.enter_async_context(receiving())
        connection = development_connection(azurite.blob, queue, table)
        host = await stack.enter_async_context(devhost(connection, receiver.url, {"DEVHOST_MASTER_KEY": MASTER_KEY}))
        opened = len(requests)
        keys = await make_tenants(host, receiver.url, COUNT)
        await _swept(host)
        trial, length, lead = TRIAL
        rate = rate_for((await stream(host, azurite, receiver, trial, length, lead, TenantPosts(host, keys).send)).thread)
        posts, loaded, began = TenantPosts(host, keys), len(requests), time.monotonic()
        streamed = await stream(host, azurite, receiver, rate, seconds, LEAD, posts.send)
        load = requests[loaded:]
    before = (requests[:opened], requests[opened:loaded])
    return Recorded(streamed, rate, before, load, began, posts.sent, (azurite.queue, azurite.table))


async def _swept(host: Host) -> None:
    """Run the sweep, and with it the hourly job, which makes four requests for each tenant: it must not fall into the measurement."""
    headers = {"x-functions-key": MASTER_KEY}
    async with host.session.post(f"{host.url}/admin/functions/sweep", headers=headers) as answer:
        assert answer.status == 202, answer.status


async def _play(ours: Recorded) -> Bound:
    """Play a load's requests and its deliveries again."""
    claims = claims_of(ours.requests, ours.due)
    paths = paths_to(claims, ours.requests)
    wall = time.time() - time.monotonic()
    latest = served_by(paths, ours.requests, {event: due / 1000 - wall - STARTS for event, due in ours.due.items()})
    steps = plan(ours.requests, ours.began, tenant_of, latest)
    with emulator() as azurite:
        assert azurite.pid is not None
        ports = dict(zip(ours.ports, (azurite.queue, azurite.table), strict=True))
        async with receiving() as receiver:
            opening, making = ours.before
            await _again(opening, lambda raw: "opening", ports)
            await _again(making, lambda raw: tenant_of(raw) or "other", ports)
            start = time.monotonic() + 1.0
            errands: dict[int, list[Errand]] = {}
            for event, step in claims.items():
                # As much later as the player begins later.
                due = ours.due[event] + round(1000 * (start - ours.began))
                errands.setdefault(step, []).append(Errand(receiver.url, delivery(event, due), due / 1000 - wall - start))
            thread = machine.thread_seconds(azurite.pid)
            played = await play(steps, ports, errands, start)
            thread = 1000 * (machine.thread_seconds(azurite.pid) - thread) / ours.streamed.count
            await receiver.until(len(claims), 60.0, lambda arrived: None)
            stats = await receiver.ask("stats")
    same = sum(request.status == status for request, status in zip(ours.requests, played.statuses, strict=True)) / len(steps)
    bare = [sum(played.took[number] for number in path) for path in paths.values()]
    return Bound(stats, thread, same, _p99(bare), _p99([spent(path, ours.requests) for path in paths.values()]))


async def _again(requests: Sequence[Request], group_of: Callable[[bytes], str], ports: Mapping[int, int]) -> None:
    """Play requests as fast as the emulator takes them, reads too: node has compiled its code then."""
    await play(in_order(requests, group_of), ports, {}, time.monotonic())


def _p99(seconds: Iterable[float]) -> float:
    """Return the p99 in milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def spent(path: Sequence[int], requests: Sequence[Request]) -> float:
    """Return the seconds of the requests that a delivery needs, with the pauses of the app while it takes and loads the shard.

    The owner begins, and claims, when it is time: the waits before these are none of its own.
    """
    total = sum(requests[number].ended - requests[number].began for number in path)
    begins = _begins(path, requests)
    for before, number in pairwise(path):
        if begins < number < path[-1]:
            total += max(0.0, requests[number].began - requests[before].ended)
    return total


def tenant_of(raw: bytes) -> str:
    """Return the tenant that a request names first; "" if there is none."""
    found = _TENANT.search(raw)
    return found[0].decode() if found else ""


def claims_of(requests: Sequence[Request], events: Iterable[str]) -> dict[str, int]:
    """Return for each event the number of the request that claims it: the last one that its delivery needs."""
    wanted, found = set(events), dict[str, int]()
    for number, request in enumerate(requests):
        if rows := _CLAIMED.findall(request.raw):
            named = {f"{shard.decode()}.{row.decode()}" for shard in _SHARD.findall(request.raw) for row in rows}
            for event in named & wanted:
                found.setdefault(event, number)
    return found


def paths_to(claims: Mapping[str, int], requests: Sequence[Request]) -> dict[str, list[int]]:
    """Return for each event the numbers of the requests about its shard before the shard's first claim, and of its own claim."""
    first: dict[str, int] = {}
    for event, claim in claims.items():
        first[_shard_of(event)] = min(claim, first.get(_shard_of(event), claim))
    shards: dict[str, list[int]] = {shard: [] for shard in first}
    for number, request in enumerate(requests):
        for shard in {each.decode() for each in _SHARD.findall(request.raw)} & shards.keys():
            if number < first[shard]:
                shards[shard].append(number)
    return {event: [*shards[_shard_of(event)], claim] for event, claim in claims.items()}


def served_by(paths: Mapping[str, Sequence[int]], requests: Sequence[Request], times: Mapping[str, float]) -> dict[int, float]:
    """Return when each request of an owner begins at the latest. times: that of each event's owner.

    An owner's requests are those from the last read of the gate to the claim. A recorded one is later if the app, its host or the queue was
    slow, which the bare client is not.
    """
    latest: dict[int, float] = {}
    for event, path in paths.items():
        begins = _begins(path, requests)
        for number in path:
            if number >= begins:
                latest[number] = min(latest.get(number, math.inf), times[event])
    return latest


def _begins(path: Sequence[int], requests: Sequence[Request]) -> int:
    """Return the number of the last read of the gate, with which the owner begins; that of the claim if there is none."""
    return max((number for number in path if _GATE.search(requests[number].raw)), default=path[-1])


def _shard_of(event: str) -> str:
    return event.partition(".")[0]


def delivery(event: str, due: Millis) -> bytes:
    """Return the request of a delivery as the receiver counts it."""
    body = payload(0).encode()
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nce-id: {event}\r\nce-tocsindue: {to_text(due)}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
