"""Traces of real processes: the app and servers with TOCSIN_TRACE=all, killed with kill -9, on a network that loses answers.

Without a planted bug, no step of gates, leases and turns is illegal, however processes end. With one in the processes,
`tocsin verify-trace` finds it in what they had logged.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import ROOT, Azurite
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, MoveLimits
from shared.storage.azure.tables import AzureTables
from shared.storage.blocking import HttpTables
from shared.storage.names import FLEETS
from tests import waiting
from tests.integration.checkpoints.test_members import Fleet as Replicas
from tests.integration.leases.proxy import Proxy
from tests.integration.leases.test_processes import DATA, KEY, PARTITIONS, PROFILE, Fixture, shared_out
from tests.integration.scheduler.conftest import System, Tenant, now_ms, text_of
from tests.integration.scheduler.receiver import Receiver, status
from tests.waiting import eventually

PLANT = str(Path(__file__).with_name("planted"))


def verify(*files: Path) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the document of the command."""
    command = [sys.executable, "-m", "shared.cli", "verify-trace", "--json", *map(str, files)]
    done = waiting.run(command, cwd=ROOT)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def planted(bug: str) -> dict[str, str]:
    """Return the environment of a process with a bug."""
    return {"PYTHONPATH": f"{PLANT}:{ROOT}", "PLANTED": bug}


@contextmanager
def app(folder: Path, azurite: Azurite, **environment: str) -> Iterator[System]:
    """The app on a network that loses answers of tables."""
    with ExitStack() as stack:
        receiver = Receiver().start()
        stack.callback(receiver.stop)
        system = System(folder, azurite, receiver, TOCSIN_TRACE="all", **environment)
        system.host.start()
        try:
            yield system
        finally:
            system.host.kill()


def lossy(azurite: Azurite, proxy: Proxy) -> dict[str, str]:
    """Return the environment of a process whose tables are behind the proxy."""
    table = azurite.connection_string.partition("TableEndpoint=http://127.0.0.1:")[2].partition("/")[0]
    through = azurite.connection_string.replace(f":{table}/", f":{proxy.port}/")
    return {"TocsinStorage": through, "AzureWebJobsStorage": through}


def table_port(azurite: Azurite) -> int:
    return int(azurite.connection_string.partition("TableEndpoint=http://127.0.0.1:")[2].partition("/")[0])


@contextmanager
def servers(folder: Path, azurite: Azurite, monkeypatch: pytest.MonkeyPatch, **environment: str) -> Iterator[Fixture]:
    """A fleet whose servers log their traces to servers.log."""
    for name, value in {"TOCSIN_TRACE": "all", "SERVER_LOG": str(folder / "servers.log"), **environment}.items():
        monkeypatch.setenv(name, value)

    async def tables_made() -> None:
        setup = AzureTables.from_connection_string(azurite.connection_string)
        await setup.ensure([FLEETS, DATA])
        await setup.close()

    asyncio.run(tables_made())
    tables = HttpTables.from_connection_string(azurite.connection_string)
    fleet = Fixture(tables, azurite.connection_string, folder)
    if "PYTHONPATH" in environment:
        fleet._environment["PYTHONPATH"] = environment["PYTHONPATH"]
    limits = MoveLimits(claims_per_cycle=PARTITIONS, drain=0.8)
    assert fleet.runner.run(takeover.create_fleet(KEY, Fleet(PARTITIONS, PROFILE, limits)))
    try:
        yield fleet
    finally:
        for process in fleet.processes:
            process.close()
        tables.close()


async def spread(tenant: Tenant, count: int, **event: Any) -> list[str]:
    """Store events that are due soon; return their ids."""
    first = now_ms() + 4_000
    return await tenant.api.batch([{"due": text_of(first + 10 * number), "payload": number, **event} for number in range(count)])


def wait(look: Any, what: str) -> Any:
    return asyncio.run(eventually(look, what, 240))


DROP = 0.02


def play_events(system: System, proxy: Proxy) -> None:
    """Deliver events, some of them in vain at first, while users cancel and move others and the app is killed.

    No answer is lost during calls that must succeed: the API answers 503 where it cannot know the outcome.
    """

    async def play() -> None:
        proxy.drop = 0.0
        async with system.tenant(retry={"attempts": 2, "first": "PT1S", "max": "PT1S"}) as tenant:
            await tenant.channel("failing", f"{tenant.path}/failing")
            tenant.receiver.script(f"{tenant.path}/failing", status(500), status(204))
            wanted = await spread(tenant, 150)
            await spread(tenant, 10, channel="failing")
            far = await tenant.api.batch([{"delay": "PT1H", "payload": n} for n in range(20)])
            for number, event_id in enumerate(far):
                method, body = ("DELETE", None) if number % 2 else ("PATCH", {"delay": "PT2S"})
                await tenant.api.call(method, f"events/{event_id}", body)
            proxy.drop = DROP
            for number in range(40):
                # Stored or not, whatever the answer.
                await tenant.api.call("POST", "events", {"delay": "PT3S", "payload": number})
            await eventually(lambda: len(tenant.hits) > 40, "deliveries", 240)
            system.host.kill()
            await asyncio.to_thread(system.host.start)
            await eventually(lambda: set(wanted) <= set(tenant.by_id()), "all deliveries", 240)
            proxy.drop = 0.0
        proxy.drop = DROP

    asyncio.run(play())


def test_no_step_of_real_processes_is_illegal_with_kill_9_and_lost_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = tmp_path / "members"
    members.mkdir()
    with Azurite(memory=True) as azurite, Proxy(table_port(azurite), seed=3) as proxy, ExitStack() as stack:
        fleet = stack.enter_context(servers(tmp_path, azurite, monkeypatch))
        a, b = fleet.start("a", proxy), fleet.start("b")
        system = stack.enter_context(app(tmp_path, azurite, SPLIT="1", **lossy(azurite, proxy)))
        replicas = Replicas("turns", system.host, members)
        stack.callback(replicas.close)
        replicas.lead("p", 1)
        for name in "pqr":
            replicas.start(name)
        proxy.drop = DROP
        wait(lambda: shared_out(fleet, "a", "b"), "equal shares")
        a.kill()
        play_events(system, proxy)
        again = fleet.start("a")
        wait(lambda: shared_out(fleet, "a", "b"), "equal shares again")
        wait(lambda: len(replicas.published()) > 1, "turns")
        for server in (again, b):
            server.leave()
        assert proxy.dropped
    code, found = verify(tmp_path / "devhost.txt", tmp_path / "servers.log")
    assert code == 0 and found["legal"], found["illegal"]
    assert min(found["steps"].values()) > 10 and found["unreadable"] == 0, found
    text = (tmp_path / "devhost.txt").read_text()
    assert "protocol_violation" not in text and "Illegal step" not in text


@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("a beat without its ETag", "whatever its ETag"),
        pytest.param("claims without the partition's ETag", "whatever its ETag", marks=pytest.mark.long),
        pytest.param("the epoch is not raised", "under epoch", marks=pytest.mark.long),
    ],
)
def test_bugs_in_servers_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, rule: str) -> None:
    with Azurite(memory=True) as azurite, servers(tmp_path, azurite, monkeypatch, **planted(f"leases: {bug}")) as fleet:
        log = tmp_path / "servers.log"
        a, _ = fleet.start("a"), fleet.start("b")
        wait(lambda: shared_out(fleet, "a", "b"), "equal shares")
        a.kill()

        async def is_found() -> bool:
            return (await asyncio.to_thread(verify, log))[0] == 1

        asyncio.run(eventually(is_found, "the bug in the trace", 240, pause=1))
    code, found = verify(log)
    assert code == 1 and rule in found["illegal"][0]["rules"][0], found["illegal"]
    assert found["illegal"][0]["before"] and found["illegal"][0]["kind"] == "lease"


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "rule"),
    [
        ("the gate is written unconditionally", "whatever its ETag"),
        ("retries are forgotten at the finish", "open events"),
        ("claims are not written", "without a claim"),
    ],
)
def test_bugs_in_the_app_are_found_by_the_command_and_raise_an_alarm_in_the_process(tmp_path: Path, bug: str, rule: str) -> None:
    async def play(system: System) -> None:
        async with system.tenant(retry={"attempts": 2, "first": "PT1S", "max": "PT1S"}) as tenant:
            await tenant.channel("failing", f"{tenant.path}/failing")
            tenant.receiver.script(f"{tenant.path}/failing", status(500))
            await spread(tenant, 5, channel="failing")
            await spread(tenant, 60)
            await eventually(lambda: len(tenant.hits) >= 60, "deliveries", 240)
            # Another event makes the process look again at what it did half a minute before.
            await eventually(lambda: alarmed(tenant), "an alarm", 240, pause=5)

    async def alarmed(tenant: Tenant) -> bool:
        await tenant.api.create(delay="PT0S")
        return "Illegal step of gate" in log.read_text()

    log = tmp_path / "devhost.txt"
    with Azurite(memory=True) as azurite, app(tmp_path, azurite, **planted(f"shards: {bug}")) as system:
        asyncio.run(play(system))
    code, found = verify(log)
    assert code == 1 and any(rule in each["rules"][0] for each in found["illegal"]), found["illegal"]


@pytest.mark.long
def test_a_bug_of_turns_is_found(tmp_path: Path) -> None:
    """The next turn is granted right after a revoke, while the holder may still work."""
    members = tmp_path / "members"
    members.mkdir()
    log = tmp_path / "devhost.txt"
    bug = planted("turns: the next grant right after a revoke")
    with Azurite(memory=True) as azurite, app(tmp_path, azurite, **bug) as system, ExitStack() as stack:
        replicas = Replicas("turns", system.host, members)
        stack.callback(replicas.close)
        replicas.lead("p", 1)
        replicas.hold.touch()
        for name in "pqr":
            replicas.start(name)

        async def is_found() -> bool:
            held = replicas.taking()
            if held is not None:
                replicas.call("POST", f"/turns/{held.about[0]}/revoke", {"note": "a test"})
            return (await asyncio.to_thread(verify, log))[0] == 1

        asyncio.run(eventually(is_found, "the bug in the trace", 240, pause=1))
    code, found = verify(log)
    assert code == 1 and "may work on" in found["illegal"][0]["rules"][0] and found["illegal"][0]["kind"] == "turn", found["illegal"]
