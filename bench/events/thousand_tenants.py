"""Lateness of 1,000 tenants: on Azurite, beside that of a bare client, and on storage that answers in 8 ms.

Each tenant has shards of its own, so an event takes a dozen requests that it shares with no other. On a small machine, these requests fill
Azurite's one thread long before the app reaches its limit. Lateness then grows without end, and requests are refused after 25 s. So the
measurement chooses a rate on Azurite that leaves the thread some room.

The bare client sends the same requests at the same times to a new Azurite. It posts an event to the receiver when the requests that its
delivery needs are answered: those that store the event, take and load its shard, and claim it. It also sends the requests that come after
a delivery, because they load the thread too.
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
from ..tools.recorder import Request, recorded
from ..tools.replay import FollowUp, in_order, plan, play
from ..tools.stage import Host, Run, devhost, emulator, payload, receiving
from . import slow_storage
from .sparse_tenants import LEAD, Streamed, TenantPosts, lateness_of, make_tenants, stream

COUNT = 1000
RATE = 100
"""Most events a second on Azurite, and the rate on storage that answers in 8 ms."""
LIMIT = 100.0
"""Greatest lateness p99 in milliseconds."""
FACTOR = 1.3
"""Greatest storage time before a delivery, as a multiple of the bare client's; see `storage_time`."""
BUSY = 0.8
"""Greatest share of Azurite's thread that the load may take: beyond it, each request waits for many others."""
TRIAL = (10.0, 10.0, (5.0, 8.0))
"""The load that measures the thread's time for an event: events a second, seconds, least and most seconds from the POST to the due time."""
OWNER_STARTS = (WAKE_EARLY - 1000) / 1000
"""Seconds before an event's due time by which its owner starts: its message becomes visible up to a second later than it is asked for."""
MASTER_KEY = "bench"
_TENANT = re.compile(rb"(?<![a-z])t\d{4}(?!\d)")
_SHARD = re.compile(rb"(?<![0-9a-z])[0-9a-z]{16}(?![0-9a-z])")
_GATE = re.compile(rb"^GET [^ ]*RowKey='gate'")
_CLAIMED = re.compile(rb'"RowKey":"e(\d{3})","state":"firing"')


@dataclass(frozen=True, slots=True)
class Recorded:
    """A load of the app, and its requests to storage.

    streamed: the outcome. rate: events a second. before: the requests that made the app's tables, and those that made the tenants.
    requests: those of the load. began: monotonic time of its start. due: the due time of each event. ports: of the emulator's queues and
    tables.
    """

    streamed: Streamed
    rate: int
    before: tuple[Sequence[Request], Sequence[Request]]
    requests: Sequence[Request]
    began: float
    due: Mapping[str, Millis]
    ports: tuple[int, int]


class Comparison(NamedTuple):
    """The figures of the bare client, and the app's storage time beside its own.

    stats: the receiver's, with the lateness. thread: milliseconds of the emulator's thread an event. same: share of the answers that had
    the recorded status. bare, app: p99 of the storage time before a delivery in milliseconds, of the bare client and of the app.
    """

    stats: Mapping[str, Any]
    thread: float
    same: float
    bare: float
    app: float


async def measure(run: Run) -> list[Figure]:
    """Measure the app, then the bare client, then the app on slow storage."""
    seconds = run.pick(60.0, 20.0)
    run.report_progress(f"{COUNT:,} tenants on Azurite", 0, 3)
    ours = await _record(seconds)
    run.report_progress("the same requests by a bare client", 1, 3)
    comparison = await _replay(ours)
    run.report_progress("storage that answers in 8 ms", 2, 3)
    return [*figures(ours, comparison), await slow_storage.lateness(COUNT, RATE, seconds, LEAD, LIMIT)]


def figures(ours: Recorded, comparison: Comparison) -> list[Figure]:
    """Return the figures on Azurite."""
    stats, mine = comparison.stats, ours.streamed
    note = f"p50 {stats['p50']:.1f}, p90 {stats['p90']:.1f}, max {stats['max']:.0f} ms; {len(ours.requests) / mine.count:.1f} requests and "
    note += f"{comparison.thread:.1f} ms of Azurite's thread an event; {comparison.same:.1%} of the answers have the recorded status"
    times = f"p99 to store, take, load and claim an event: {comparison.app:.0f} ms, the bare client {comparison.bare:.0f} ms"
    return [
        mine.figure(lateness_of(COUNT, ours.rate), LIMIT),
        Figure("  lateness p99 of the same requests by a bare client", stats["p99"], "ms", note=note, details=stats),
        Figure("  storage time before a delivery, times the bare client's", comparison.app / comparison.bare, "", "<=", FACTOR, times),
        Figure(f"  share of Azurite's one thread that {RATE} a second would take", mine.thread * RATE / 10, "%"),
    ]


def rate_for(thread: float) -> int:
    """Return the events a second that take the share `BUSY` of the emulator's thread, 1 to `RATE`. thread: its milliseconds an event."""
    return max(1, min(RATE, int(1000 * BUSY / thread)))


async def _record(seconds: float) -> Recorded:
    """Run the load on the app, and record its requests."""
    requests: list[Request] = []
    async with AsyncExitStack() as stack:
        azurite = stack.enter_context(emulator())
        queue, table = [await stack.enter_async_context(recorded(port, requests)) for port in (azurite.queue, azurite.table)]
        receiver = await stack.enter_async_context(receiving())
        connection = development_connection(azurite.blob, queue, table)
        host = await stack.enter_async_context(devhost(connection, receiver.url, {"DEVHOST_MASTER_KEY": MASTER_KEY}))
        opened = len(requests)
        keys = await make_tenants(host, receiver.url, COUNT)
        await _sweep(host)
        trial, length, lead = TRIAL
        rate = rate_for((await stream(host, azurite, receiver, trial, length, lead, TenantPosts(host, keys).send)).thread)
        posts, loaded, began = TenantPosts(host, keys), len(requests), time.monotonic()
        streamed = await stream(host, azurite, receiver, rate, seconds, LEAD, posts.send)
        load = requests[loaded:]
    before = (requests[:opened], requests[opened:loaded])
    return Recorded(streamed, rate, before, load, began, posts.sent, (azurite.queue, azurite.table))


async def _sweep(host: Host) -> None:
    """Run the sweep, and with it the hourly job, whose four requests for each tenant must not fall into the measurement."""
    headers = {"x-functions-key": MASTER_KEY}
    async with host.session.post(f"{host.url}/admin/functions/sweep", headers=headers) as answer:
        assert answer.status == 202, answer.status


async def _replay(ours: Recorded) -> Comparison:
    """Send the requests of a load again, and deliver its events, with a bare client."""
    claims = claims_of(ours.requests, ours.due)
    paths = paths_to(claims, ours.requests)
    wall_offset = time.time() - time.monotonic()
    latest = latest_times(paths, ours.requests, {event: due / 1000 - wall_offset - OWNER_STARTS for event, due in ours.due.items()})
    steps = plan(ours.requests, ours.began, tenant_of, latest)
    with emulator() as azurite:
        assert azurite.pid is not None
        ports = dict(zip(ours.ports, (azurite.queue, azurite.table), strict=True))
        async with receiving() as receiver:
            opening, making = ours.before
            await _replay_fast(opening, lambda raw: "opening", ports)
            await _replay_fast(making, lambda raw: tenant_of(raw) or "other", ports)
            start = time.monotonic() + 1.0
            follow_ups: dict[int, list[FollowUp]] = {}
            for event, step in claims.items():
                # Due as long after the start as in the recording.
                due = ours.due[event] + round(1000 * (start - ours.began))
                follow_ups.setdefault(step, []).append(FollowUp(receiver.url, delivery(event, due), due / 1000 - wall_offset - start))
            thread = machine.thread_seconds(azurite.pid)
            played = await play(steps, ports, follow_ups, start)
            thread = 1000 * (machine.thread_seconds(azurite.pid) - thread) / ours.streamed.count
            await receiver.until(len(claims), 60.0, lambda arrived: None)
            stats = await receiver.ask("stats")
    same = sum(request.status == status for request, status in zip(ours.requests, played.statuses, strict=True)) / len(steps)
    bare = [sum(played.took[number] for number in path) for path in paths.values()]
    return Comparison(stats, thread, same, _p99(bare), _p99([storage_time(path, ours.requests) for path in paths.values()]))


async def _replay_fast(requests: Sequence[Request], group_of: Callable[[bytes], str], ports: Mapping[int, int]) -> None:
    """Send requests as fast as the emulator takes them, and reads too: then Node.js has compiled its code before the measurement."""
    await play(in_order(requests, group_of), ports, {}, time.monotonic())


def _p99(seconds: Iterable[float]) -> float:
    """Return the p99 of times in seconds, in milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def storage_time(path: Sequence[int], requests: Sequence[Request]) -> float:
    """Return the seconds of the requests that a delivery needs, and of the app's pauses while it takes and loads the shard.

    path: their numbers. The owner starts, and claims, at planned times, so the pauses before the start and the claim do not count.
    """
    total = sum(requests[number].ended - requests[number].began for number in path)
    begins = _first_of_owner(path, requests)
    for before, number in pairwise(path):
        if begins < number < path[-1]:
            total += max(0.0, requests[number].began - requests[before].ended)
    return total


def tenant_of(raw: bytes) -> str:
    """Return the tenant that a request names first; "" if it names none."""
    found = _TENANT.search(raw)
    return found[0].decode() if found else ""


def claims_of(requests: Sequence[Request], events: Iterable[str]) -> dict[str, int]:
    """Return for each event the number of the request that claims it first: the last request that its delivery needs."""
    wanted, found = set(events), dict[str, int]()
    for number, request in enumerate(requests):
        if rows := _CLAIMED.findall(request.raw):
            named = {f"{shard.decode()}.{row.decode()}" for shard in _SHARD.findall(request.raw) for row in rows}
            for event in named & wanted:
                found.setdefault(event, number)
    return found


def paths_to(claims: Mapping[str, int], requests: Sequence[Request]) -> dict[str, list[int]]:
    """Return the requests that each event's delivery needs: those about its shard before the first claim, and its own claim."""
    first: dict[str, int] = {}
    for event, claim in claims.items():
        first[_shard_of(event)] = min(claim, first.get(_shard_of(event), claim))
    shards: dict[str, list[int]] = {shard: [] for shard in first}
    for number, request in enumerate(requests):
        for shard in {each.decode() for each in _SHARD.findall(request.raw)} & shards.keys():
            if number < first[shard]:
                shards[shard].append(number)
    return {event: [*shards[_shard_of(event)], claim] for event, claim in claims.items()}


def latest_times(paths: Mapping[str, Sequence[int]], requests: Sequence[Request], times: Mapping[str, float]) -> dict[int, float]:
    """Return the monotonic time by which each request of an owner is sent, by its number. times: that by which each event's owner starts.

    An owner's requests are those from the last read of the gate to the claim. The recorded ones came later if the app, its host or the
    queue was slow; the bare client does not wait for these.
    """
    latest: dict[int, float] = {}
    for event, path in paths.items():
        begins = _first_of_owner(path, requests)
        for number in path:
            if number >= begins:
                latest[number] = min(latest.get(number, math.inf), times[event])
    return latest


def _first_of_owner(path: Sequence[int], requests: Sequence[Request]) -> int:
    """Return the number of an owner's first request, the last read of the gate; that of the claim if there is no such read."""
    return max((number for number in path if _GATE.search(requests[number].raw)), default=path[-1])


def _shard_of(event: str) -> str:
    return event.partition(".")[0]


def delivery(event: str, due: Millis) -> bytes:
    """Return the HTTP request of a delivery, with the headers that the receiver counts. due: its due time."""
    body = payload(0).encode()
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nce-id: {event}\r\nce-tocsindue: {to_text(due)}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
