"""An agent's way through events, as a process against the emulator: alone, over reboots, garbage and signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.extras.emulator import Emulator
from tests.unit.core.node_logs.collector import JsonCollector
from tests.unit.core.node_logs.test_formats import parsed

from .agents import Agent, until
from .conftest import MakeAgent

CRASHING = "tests.integration.maintenance.crashing"


def update(**more: Any) -> dict[str, Any]:
    return {"event": {"name": "update", "vms": ["n1"], "type": "Freeze", "duration": 9, "notice": "PT20M", "settles": "PT1H"} | more}


async def started(agent: Agent) -> None:
    await until(lambda: agent.said("agent_started"), "it begins", [agent])


async def test_platform_event_is_prepared_approved_and_recovered_from(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    await started(agent)
    imds.do(update())
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert agent.did() == ["prepare"]
    await imds.until(lambda world: imds.event("update").started_at is not None)
    assert (await agent.ask("/maintenance"))[0] == 503
    imds.do({"complete": "update"})
    await until(lambda: agent.said("agent_restored"), "the node is back", [agent])
    assert agent.did() == ["prepare", "restore", "verify"]
    await until(lambda: agent.phases() == ["DONE"], "it is over", [agent])
    status, document = await agent.ask("/maintenance")
    assert (status, [event["phase"] for event in document["events"]]) == (200, ["DONE"])
    assert (await agent.ask("/ready")) == (200, {"ready": True, "reasons": []})
    assert 'tocsin_agent_hook_runs_total{hook="prepare",outcome="done"} 1' in (await agent.ask("/metrics"))[1]
    assert agent.end() == 0
    # Each line about the event carries its id, in one case, and says what was done.
    [event_id] = {line["event_id"] for line in agent.lines if line.get("event_id")}
    assert event_id == imds.event("update").shown.id.lower()
    assert {"agent_event_seen", "agent_prepared", "agent_approving", "agent_approved", "agent_event_gone"} <= set(agent.actions())


@pytest.fixture
def outputs(tmp_path: Path) -> Iterator[tuple[JsonCollector, list[dict[str, bytes]], str]]:
    """A collector, and the lines that a socket in place of journald's gets, with its path."""
    lines: list[dict[str, bytes]] = []

    def read(server: socket.socket) -> None:
        while datagram := server.recv(300_000):
            lines.append(parsed(datagram))

    path = str(tmp_path / "journal")
    with JsonCollector() as collector, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        reader = threading.Thread(target=read, args=(server,), daemon=True)
        reader.start()
        yield collector, lines, path
        # An empty datagram ends the reader.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.sendto(b"", path)
        reader.join()


async def test_each_line_of_a_maintenance_leaves_the_node_with_the_event_id_and_no_secret(
    imds: Emulator, make: MakeAgent, outputs: tuple[JsonCollector, list[dict[str, bytes]], str]
) -> None:
    collector, journal, path = outputs
    agent = make(hooks={"caught_up": "", "prepare": 'echo "headers: $OTEL_EXPORTER_OTLP_HEADERS, and s3cret-of-mine"'})
    secret = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=s3cret-of-mine"}
    agent.start("--otlp", collector.url, environment={"TOCSIN_LOG_JOURNALD": path, **secret})
    await until(lambda: agent.said("agent_caught_up"), "it looks", [agent])
    imds.do(update())
    await imds.until(lambda world: imds.event("update").started_at is not None)
    imds.do({"complete": "update"})
    await until(lambda: len(agent.said("agent_caught_up")) == 2, "the node has caught up", [agent])
    metrics = (await agent.ask("/metrics"))[1]
    assert agent.end() == 0
    event_id = imds.event("update").shown.id.lower()
    for lines, key, act in (
        # A batch has the lines of each logger together.
        (sorted(collector.lines, key=lambda line: line["at_ns"]), "event_id", "action"),
        ([{name: value.decode() for name, value in each.items()} for each in journal], "TOCSIN_EVENT_ID", "TOCSIN_ACTION"),
    ):
        actions = [line[act] for line in lines]
        begin, end = actions.index("agent_event_seen"), len(actions) - actions[::-1].index("agent_caught_up")
        assert [line for line in lines[begin:end] if line.get(key) != event_id] == [] and end - begin >= 15
        assert [line for line in lines if line.get(key.replace("event_id", "node").replace("EVENT_ID", "NODE")) != "n1"] == []
        assert "headers: , and ***" in str(lines) and "s3cret-of-mine" not in str(lines)
        assert actions[-1] == "agent_stops"
    assert collector.requests[0]["api-key"] == "s3cret-of-mine"
    assert re.search(r'tocsin_agent_log_lines_total{outcome="sent"} \d\d', metrics)


async def test_event_of_a_user_is_approved_at_once_and_nothing_is_run(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    await started(agent)
    imds.do(update(source="User", type="Reboot", duration=-1))
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    imds.do({"complete": "update"})
    await until(lambda: agent.phases() == ["DONE"], "it is over", [agent])
    assert agent.did() == []


async def test_garbage_and_silence_change_nothing(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    imds.do(update())
    await until(lambda: agent.phases() == ["STARTED"], "it begins", [agent])
    bodies = ["empty", "null", "truncated", "html", "list", "no-events", "events-null", "events-object"]
    for number, body in enumerate(bodies):
        imds.do({"fault": {"on": ["get"], "body": body, "times": 1}})
        await until(lambda number=number: len(agent.said("agent_document_missing")) > number, body, [agent])  # type: ignore[misc]
        await until(lambda number=number: len(agent.said("agent_document_back")) > number, "good again", [agent])  # type: ignore[misc]
    imds.do({"fault": {"on": ["get"], "drop": True, "times": 1}})
    await until(lambda: any("Disconnected" in line["text"] for line in agent.said("agent_document_missing")), "hung up", [agent])
    assert (agent.phases(), agent.did()) == (["STARTED"], ["prepare"])
    imds.do({"complete": "update"})
    await until(lambda: agent.did() == ["prepare", "restore", "verify"], "back", [agent])


async def test_lost_answer_to_an_approval_is_found_out_and_nothing_is_prepared_twice(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    imds.do({"fault": {"on": ["post"], "drop": True, "times": 1}})
    imds.do({"fault": {"on": ["post"], "status": 503, "times": 1}})
    imds.do(update())
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    await until(lambda: agent.phases() == ["STARTED"], "it begins", [agent])
    assert agent.did() == ["prepare"] and len(agent.said("agent_approval_failed")) >= 2


async def test_reboot_of_the_machine_differs_from_a_restart_of_the_agent(imds: Emulator, make: MakeAgent) -> None:
    agent = make(module=CRASHING)
    agent.boot.write_text("boot-1\n")
    agent.start(environment={"BOOT": str(agent.boot)})
    imds.do(update(type="Reboot", duration=-1))
    await until(lambda: agent.phases() == ["STARTED"], "it begins", [agent])
    agent.kill()
    agent.boot.write_text("boot-2\n")
    agent.start(environment={"BOOT": str(agent.boot)})
    await until(lambda: agent.said("agent_restart_expected"), "expected", [agent])
    imds.do({"complete": "update"})
    await until(lambda: agent.phases() == ["DONE"], "it is over", [agent])
    assert agent.did() == ["prepare", "restore", "verify"] and agent.kept()["boot_id"] == "boot-2"


async def test_services_that_came_up_at_boot_are_prepared_again_before_the_approval(imds: Emulator, make: MakeAgent) -> None:
    agent = make(module=CRASHING)
    agent.settings["rules"] = [{"action": "hold"}]
    agent.boot.write_text("boot-1\n")
    agent.start(environment={"BOOT": str(agent.boot)})
    imds.do(update())
    await until(lambda: agent.phases() == ["PREPARED"], "it is prepared", [agent])
    agent.kill()
    agent.boot.write_text("boot-2\n")
    agent.settings["rules"] = []
    agent.start(environment={"BOOT": str(agent.boot)})
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert agent.did() == ["prepare", "prepare"]


async def test_sigterm_ends_a_hook_with_all_it_started_and_the_next_start_goes_on(imds: Emulator, make: MakeAgent, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    agent = make(hooks={"prepare": f"[ -e {mark} ] || {{ sleep 1000 & echo $! > {mark}.new; mv {mark}.new {mark}; wait; exit 1; }}"})
    agent.start()
    imds.do(update())
    await until(mark.exists, "the hook runs", [agent])
    assert agent.end() == 0
    assert agent.phases() == ["PREPARING"] and agent.kept()["disabled"] and agent.did() == []
    await until(lambda: _gone(int(mark.read_text())), "its child is gone")
    assert imds.event("update").approved_at is None
    agent.start()
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert agent.did() == ["prepare"]


async def test_agent_waits_out_a_full_disk_without_doing_anything(imds: Emulator, make: MakeAgent, tmp_path: Path) -> None:
    agent, full = make(module=CRASHING), tmp_path / "full"
    agent.start(environment={"FULL": str(full)})
    await until(lambda: agent.kept(), "it has begun", [agent])
    full.touch()
    imds.do(update())
    await until(lambda: agent.said("agent_state_unsaved"), "it says so", [agent])
    status, document = await agent.ask("/ready")
    assert status == 503 and "No space left" in " ".join(document["reasons"])
    assert agent.did() == [] and imds.event("update").approved_at is None
    full.unlink()
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert agent.did() == ["prepare"]


@pytest.mark.long
async def test_freeze_of_the_machine_is_measured(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    imds.do(update())
    await until(lambda: agent.phases() == ["STARTED"], "it begins", [agent])
    os.kill(agent.pid, signal.SIGSTOP)
    # The impact itself: as long as the pause that is to be measured.
    await asyncio.sleep(4)
    os.kill(agent.pid, signal.SIGCONT)
    [line] = await until(lambda: agent.said("agent_impact_observed"), "noticed", [agent])
    assert line["observed_ms"] >= 3900 and agent.kept()["events"][0]["observed_ms"] == line["observed_ms"]


async def test_agent_is_small(imds: Emulator, make: MakeAgent) -> None:
    agent = make()
    agent.start()
    await until(lambda: sum(line.kind == "read" for line in imds.history) > 0 and agent.kept(), "it polls", [agent])
    pages = int(Path(f"/proc/{agent.pid}/statm").read_text().split()[1])
    # The bound that the product names; docs/how-to/maintenance.md has the figure measured.
    assert pages * os.sysconf("SC_PAGE_SIZE") < 60 * 1024 * 1024
    loaded = Path(f"/proc/{agent.pid}/maps").read_text()
    assert [name for name in ("orjson", "aiohttp") if f"/{name}" in loaded] == []


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
