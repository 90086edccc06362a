"""The agent around its loop: who it is, what it keeps, what it does when the disk or the service fails, and how it ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from shared.core.http_exchange import HttpReply, TransportFailure
from shared.maintenance.agent import service
from shared.maintenance.agent.app.reporter import AppClient
from shared.maintenance.agent.config.config import AppSettings, Config, load
from shared.maintenance.agent.effects import Approve, RunHook
from shared.maintenance.agent.executor import NodeHooks, Polls, ThreadedExecutor, asked_pause
from shared.maintenance.agent.hooks.runner import Hook, HookResult
from shared.maintenance.agent.imds.client import Machine
from shared.maintenance.agent.imds.identity import NodeSettings, disown, identify
from shared.maintenance.agent.journal import MARK, STATE, DiskFolder, Journal, ReportBacklog
from shared.maintenance.agent.loop import interpret_approval, interpret_poll
from shared.maintenance.agent.model import EventPhase, EventRecord, NodeState
from shared.maintenance.agent.model import ScheduledEvent as ScheduledEvent
from shared.maintenance.agent.observability.health import AgentFigures
from shared.maintenance.agent.observability.logs import LogContext
from shared.maintenance.agent.observability.service_manager import ServiceManager
from shared.maintenance.agent.observations import ApprovalPosted, DocumentRead, HookEnded, Observation, PollFailed
from shared.maintenance.agent.process import AgentProcess
from shared.maintenance.agent.service import Agent, CannotStart, Replaced
from tests.unit.maintenance.agent.cuttable_disk import CuttableDisk

BUSY = 60.0
MACHINE = Machine("vm_1", "westeurope", "set-1", "2", "/vm")


class Service:
    """Stands for IMDS: lists `events`, notes approvals."""

    def __init__(self, machine: Machine | TransportFailure = MACHINE) -> None:
        self.answer: Machine | TransportFailure = machine
        self.events: list[dict[str, Any]] = []
        self.number = 1
        self.silent, self.ahead = False, 0.0
        self.approved: list[str] = []

    def list(self, *events: dict[str, Any]) -> None:
        self.events, self.number = list(events), self.number + 1

    def get(self) -> HttpReply | TransportFailure:
        if self.silent:
            return TransportFailure("no answer within 5 s", timed_out=True)
        headers = {"date": formatdate(time.time() + self.ahead, usegmt=True)}
        return HttpReply(200, json.dumps({"DocumentIncarnation": self.number, "Events": self.events}).encode(), headers)

    def approve(self, event_id: str) -> HttpReply | TransportFailure:
        self.approved.append(event_id)
        return HttpReply(200, b"")

    def machine(self) -> Machine | TransportFailure:
        return self.answer


class Hooks:
    """Stands for processes: each hook that is started ends well at once, or when it is stopped."""

    def __init__(self, hang: frozenset[str] = frozenset()) -> None:
        self.ran: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self._hang = hang

    def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> HangingRun:
        self.ran.append(name)
        self.events.append(event)
        if name not in self._hang:
            done(HookResult("done", 0, "", 0.0))
        return HangingRun(done)


class HangingRun:
    def __init__(self, done: Callable[[HookResult], None]) -> None:
        self._done = done

    def stop(self) -> None:
        self._done(HookResult("stopped", -15, "", 1.0))


def event(**more: Any) -> dict[str, Any]:
    usual = {
        "EventId": "E1",
        "EventType": "Freeze",
        "Resources": ["vm_1"],
        "EventStatus": "Scheduled",
        "NotBefore": formatdate(time.time() + 3000, usegmt=True),
        "EventSource": "Platform",
        "DurationInSeconds": 9,
    }
    return usual | more


def configured(folder: Path, more: str = "") -> Config:
    path = folder / "agent.toml"
    path.write_text(
        f'state = "{folder}/state"\n{more}\n[imds]\npoll_seconds = 0.25\n[maintenance]\nlead_seconds = 3600\n[health]\nenabled = false\n'
        '[hooks.prepare]\ncommand = ["true"]\n[hooks.restore]\ncommand = ["true"]\n'
    )
    return load(path, {})


class Running:
    """Agents in threads; each is ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._agents: list[tuple[Agent, threading.Thread]] = []

    def start(self, config: Config | None = None, manager: ServiceManager | None = None, **replaced: Any) -> Agent:
        config = config if config is not None else configured(self.folder)
        agent = Agent(config, manager=manager, replaced=Replaced(**{"imds": Service(), "runner": Hooks(), "boot_id": "boot-1", **replaced}))
        thread = threading.Thread(target=agent.run)
        thread.start()
        self._agents.append((agent, thread))
        return agent

    def end(self) -> None:
        for agent, _ in self._agents:
            agent.stop()
        for _, thread in self._agents:
            thread.join(BUSY)
            assert not thread.is_alive()
        self._agents.clear()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    it = Running(tmp_path)
    yield it
    it.end()


def until[T](look: Callable[[], T], what: str) -> T:
    end = time.monotonic() + BUSY
    while not (found := look()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return found


def phases(agent: Agent) -> list[str]:
    return [each["phase"] for each in agent.health().node["events"]]


def test_event_goes_its_whole_way_and_probes_show_it(running: Running) -> None:
    service, hooks = Service(), Hooks()
    agent = running.start(imds=service, runner=hooks)
    until(lambda: agent.health().reasons == (), "ready")
    assert agent.health().in_service
    service.list(event())
    until(lambda: service.approved, "approved")
    assert hooks.ran == ["prepare"] and service.approved == ["E1"]
    until(lambda: phases(agent) == ["APPROVED"], "the approval is reported")
    assert not agent.health().in_service and agent.health().node["disabled"]
    service.list()
    until(lambda: phases(agent) == ["DONE"] and agent.health().in_service, "over")
    assert hooks.ran == ["prepare", "restore"]
    given = hooks.events[0]
    assert (given["event_id"], given["vm"], given["node"], given["attempt"], given["rehearsal"]) == ("e1", "vm_1", "vm_1", 1, False)
    assert given["state"] == str(running.folder / "state") and given["resources"] == ["vm_1"]
    text = agent.metrics()
    assert 'tocsin_agent_approvals_total{outcome="posted"} 1\n' in text and 'tocsin_agent_events{phase="DONE"} 1\n' in text
    assert "tocsin_agent_document_incarnation 3\n" in text and "process_resident_memory_bytes " in text


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_of_the_start_and_of_each_tick_even_before_the_machine_is_known(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    monkeypatch.setattr("shared.maintenance.agent.service.IDENTIFY_INTERVAL", 0.01)
    # A socket's path has at most 108 bytes.
    monkeypatch.chdir(tmp_path)
    address = f"@tocsin-{os.getpid()}" if abstract else "notify"
    environment = {"NOTIFY_SOCKET": address, "PATH": "/bin"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(BUSY)
        systemd.bind(address.replace("@", "\0"))
        imds = Service(TransportFailure("no answer"))
        running.start(imds=imds, manager=ServiceManager.take_from(environment))
        assert environment == {"PATH": "/bin"}
        assert [systemd.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]


def test_an_agent_works_while_systemd_hears_nothing(running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = running.start(manager=ServiceManager(f"{tmp_path}/nobody"))
    until(lambda: agent.health().live and not agent.health().reasons, "ready")
    assert len([record for record in caplog.records if getattr(record, "action", "") == "agent_systemd_away"]) == 1


def test_not_ready_until_a_document_came_and_says_why(running: Running) -> None:
    service = Service()
    service.silent = True
    agent = running.start(imds=service)
    until(lambda: any("no answer within 5 s" in why for why in agent.health().reasons), "says why")
    assert agent.health().live
    service.silent = False
    until(lambda: agent.health().reasons == (), "ready")


class FullDisk(CuttableDisk):
    """Takes nothing while it is full."""

    full = False

    def write(self, name: str, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(name, data)


def test_nothing_is_done_while_the_state_cannot_be_saved(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    service, hooks, disk = Service(), Hooks(), FullDisk()
    agent = running.start(imds=service, runner=hooks, disk=disk)
    until(lambda: agent.health().reasons == (), "ready")
    disk.full = True
    service.list(event())
    until(lambda: any("No space left" in why for why in agent.health().reasons), "not ready")
    assert (hooks.ran, service.approved, agent.health().live) == ([], [], True)
    disk.full = False
    until(lambda: service.approved, "goes on")
    assert hooks.ran == ["prepare"]
    [line] = [record for record in caplog.records if getattr(record, "action", "") == "agent_state_unsaved"]
    assert line.levelno == logging.ERROR


def test_an_agent_starts_on_a_full_disk_and_says_why_it_is_not_ready(running: Running) -> None:
    disk = FullDisk()
    disk.full = True
    agent = running.start(imds=Service(), runner=Hooks(), disk=disk)
    why = f"the state in {agent.config.state} cannot be saved: No space left on device"
    until(lambda: agent.health().reasons == (why,), "says why")
    assert agent.health().live
    disk.full = False
    until(lambda: agent.health().reasons == (), "ready")


@pytest.mark.parametrize("missing", ["lock", "hooks"])
def test_a_first_start_on_a_full_disk_waits_for_space_and_says_why(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    opened, made, space = os.open, Path.mkdir, threading.Event()

    def refused(path: Any) -> None:
        if Path(path).name == missing and not space.is_set():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    def opening(path: Any, *more: Any, **named: Any) -> int:
        refused(path)
        return opened(path, *more, **named)

    def making(path: Path, *more: Any, **named: Any) -> None:
        refused(path)
        made(path, *more, **named)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(Path, "mkdir", making)
    agent = running.start()
    why = f"the state in {agent.config.state} cannot be saved: No space left on device"
    until(lambda: agent.health().reasons == (why,), "says why")
    assert agent.health().live
    space.set()
    until(lambda: agent.health().reasons == (), "ready")
    [line] = [record for record in caplog.records if getattr(record, "action", "") == "agent_state_unsaved"]
    assert line.levelno == logging.ERROR


def test_an_agent_that_waits_for_space_ends_when_it_is_asked_to(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(service, "make_private_folder", full)
    agent = running.start()
    until(lambda: "No space left" in str(agent.health().reasons), "waits")
    running.end()
    assert not Agent(configured(running.folder), once=True, replaced=Replaced(imds=Service(), runner=Hooks())).run()


def test_an_agent_whose_machine_and_reports_are_saved_needs_no_space_to_start() -> None:
    disk = FullDisk()
    ReportBacklog(disk).add({"seq": 1})
    identify(NodeSettings(), Service(), disk)
    disk.full = True
    steps = disk.steps
    assert identify(NodeSettings(), Service(), disk) == MACHINE
    assert [each["seq"] for each in ReportBacklog(disk).first(9)] == [1]
    assert disk.steps == steps


def test_end_stops_the_hook_and_neither_restores_nor_approves(running: Running) -> None:
    service, hooks, disk = Service(), Hooks(frozenset({"prepare"})), CuttableDisk()
    agent = running.start(imds=service, runner=hooks, disk=disk)
    service.list(event())
    until(lambda: phases(agent) == ["PREPARING"], "prepares")
    running.end()
    assert (hooks.ran, service.approved) == (["prepare"], [])
    loaded = Journal(disk).load()
    assert loaded.state.disabled and [record.phase for record in loaded.state.events.values()] == [EventPhase.PREPARING]
    # The next one goes on from there.
    hooks = Hooks()
    running.start(imds=service, runner=hooks, disk=disk)
    until(lambda: service.approved, "approved")
    assert hooks.ran == ["prepare"]


def test_dry_run_says_what_it_would_do_and_does_nothing(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    from dataclasses import replace

    caplog.set_level(logging.INFO)
    config = configured(running.folder)
    service, hooks = Service(), Hooks()
    service.list(event())
    agent = running.start(replace(config, settings=replace(config.settings, dry_run=True)), imds=service, runner=hooks)
    until(lambda: phases(agent) == ["APPROVED"], "pretends")
    service.list()
    until(lambda: phases(agent) == ["DONE"], "pretends to the end")
    assert (hooks.ran, service.approved) == ([], []) and not config.state.exists()
    said = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "agent_dry_run"]
    assert [line for line in said if "report to the app" not in line] == ["would run prepare", "would approve", "would run restore"]


def test_once_does_what_one_look_asks_for_and_ends(tmp_path: Path) -> None:
    service, hooks = Service(), Hooks()
    service.list(event(EventId="A"), event(EventId="B", EventSource="User"))
    assert Agent(configured(tmp_path), once=True, replaced=Replaced(imds=service, runner=hooks)).run()
    assert sorted(service.approved) == ["A", "B"] and hooks.ran == ["prepare"] * len(hooks.ran)
    service.list()
    assert Agent(configured(tmp_path), once=True, replaced=Replaced(imds=service, runner=hooks)).run()
    assert hooks.ran[-1] == "restore"


def test_once_hears_the_fleet_before_it_approves_what_its_own_rules_would(tmp_path: Path) -> None:
    settings = {"lead_ms": 0, "leads_ms": {}, "require_central": False, "rules": [{"action": "prepare", "source": "User"}]}
    answers: list[HttpReply | TransportFailure] = [TransportFailure("busy"), HttpReply(200, json.dumps({"settings": settings}).encode())]
    app = AppSettings("https://app.example", "db", "a-key-of-this-node")
    client = AppClient(app, ask=lambda *_, **__: answers.pop(0) if answers[1:] else answers[0])
    service, hooks = Service(), Hooks()
    service.list(event(EventSource="User"))
    alone = configured(tmp_path)
    config = replace(alone, app=app, settings=replace(alone.settings, central=True, fleet="db", patience=600.0))
    assert Agent(config, once=True, replaced=Replaced(imds=service, runner=hooks, client=client)).run()
    assert hooks.ran[:1] == ["prepare"]


def test_once_without_a_document_says_so(tmp_path: Path) -> None:
    service = Service()
    service.silent = True
    assert not Agent(configured(tmp_path), once=True, replaced=Replaced(imds=service, runner=Hooks())).run()
    nobody = tmp_path / "nobody"
    nobody.mkdir()
    assert not Agent(configured(nobody), once=True, replaced=Replaced(imds=Service(TransportFailure("refused")), runner=Hooks())).run()


def test_second_agent_on_one_folder_is_refused(running: Running) -> None:
    agent = running.start()
    until(lambda: agent.health().reasons == (), "ready")
    with pytest.raises(CannotStart, match="another agent already uses"):
        Agent(configured(running.folder), replaced=Replaced(imds=Service(), runner=Hooks())).run()


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(CannotStart, match=r"state cannot be used: .* `state`"):
        Agent(configured(tmp_path), replaced=Replaced(imds=Service(), runner=Hooks())).run()


# -- who this machine is


def test_machine_is_what_the_file_says_before_what_the_service_says(tmp_path: Path) -> None:
    disk = CuttableDisk()
    node = NodeSettings(scope="avset-1", fault_domain="7")
    assert identify(node, Service(), disk) == Machine("vm_1", "westeurope", "avset-1", "7", "/vm")


def test_machine_that_the_service_does_not_name_is_the_one_it_named_last() -> None:
    disk = CuttableDisk()
    silent = Service(TransportFailure("refused"))
    assert identify(NodeSettings(), silent, disk) == TransportFailure("refused")
    assert identify(NodeSettings(vm="vm_9"), silent, disk) == Machine("vm_9")
    identify(NodeSettings(), Service(), disk)
    assert identify(NodeSettings(), silent, disk) == MACHINE


@pytest.mark.parametrize("kept", [b"", b"{", b"[]", b'{"vm": "a", "color": "red"}'])
def test_memory_of_the_machine_that_cannot_be_read_counts_as_none(kept: bytes) -> None:
    disk = CuttableDisk()
    disk.write("machine.json", kept)
    assert identify(NodeSettings(), Service(TransportFailure("refused")), disk) == TransportFailure("refused")


def test_state_that_came_in_an_image_of_another_machine_is_set_aside(running: Running) -> None:
    disk = CuttableDisk()
    identify(NodeSettings(), Service(Machine("vm_0")), disk)
    old = ScheduledEvent("e1", "E1", "Freeze", "Scheduled", None, resources=("vm_0",))
    Journal(disk).save(NodeState("boot-0", disabled=True, events={"e1": EventRecord(old, EventPhase.PREPARED, 1)}))
    hooks = Hooks()
    agent = running.start(imds=Service(), runner=hooks, disk=disk)
    until(lambda: agent.health().reasons == (), "ready")
    assert phases(agent) == [] and hooks.ran == [], "nothing of the other machine is put back here"
    assert disk.read(f"{STATE}.of-another") and disk.read(f"{MARK}.of-another")


# -- answers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (TransportFailure("no answer within 5 s", timed_out=True), "IMDS: no answer within 5 s"),
        (HttpReply(503, b""), "IMDS answers 503"),
        (HttpReply(400, b'{"error":\n "Bad request"}'), 'IMDS answers 400: {"error": "Bad request"}'),
        (HttpReply(200, b""), "IMDS: the body is empty"),
        (HttpReply(204, b'{"Events": []}'), 'IMDS answers 204: {"Events": []}'),
    ],
)
def test_only_a_200_with_a_document_shows_anything(answer: HttpReply | TransportFailure, reason: str) -> None:
    assert interpret_poll(answer) == PollFailed(reason)


@pytest.mark.parametrize(
    ("answer", "outcome", "status"),
    [
        (HttpReply(200, b""), "accepted", 200),
        (TransportFailure("refused"), "busy", 0),
        *((HttpReply(status, b""), "busy", status) for status in (410, 429, 500, 503)),
        *((HttpReply(status, b""), "refused", status) for status in (201, 400, 404, 405)),
    ],
)
def test_what_came_of_an_approval(answer: HttpReply | TransportFailure, outcome: Any, status: int) -> None:
    assert interpret_approval(Approve("e1", "E1", 1, "a1"), answer) == ApprovalPosted("e1", outcome, status, "a1")


def worker(imds: Service, heard: list[Observation], runner: Hooks | None = None) -> ThreadedExecutor:
    hooks = {"prepare": Hook(("true",), deadline=60)}
    process = AgentProcess(AgentFigures(), LogContext(), lambda: 0, lambda: 0.0, lambda: 0.0)
    return ThreadedExecutor(Polls(imds, 1), NodeHooks(hooks, runner, {}, Path("/s")), None, heard.append, process)  # type: ignore[arg-type]


def test_clock_that_differs_from_the_metadata_services_is_warned_about(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = Service()
    agent = running.start(imds=service)
    until(lambda: agent.health().reasons == (), "ready")
    service.ahead = 60
    until(lambda: "behind" in said(caplog, "agent_clock_wrong"), "warned")
    until(lambda: agent.figures.value("tocsin_agent_clock_error_seconds") < -50, "measured")
    service.ahead = 0
    until(lambda: said(caplog, "agent_clock_right") != "", "agrees again")


def said(caplog: pytest.LogCaptureFixture, action: str) -> str:
    return " ".join(each.getMessage() for each in caplog.records if getattr(each, "action", "") == action)


@pytest.mark.parametrize(
    ("status", "asked", "due", "pause"),
    [
        (429, "10", None, 10.0),
        (503, " 10 ", None, 10.0),
        (429, "30", None, 20.0),
        (429, "9" * 5000, None, 20.0),
        (429, "10", 12.0, 7.0),
        (429, "10", 4.0, 0.0),
        (429, "10", 0.0, 0.0),
        (429, "soon", None, 0.0),
        (429, "-5", None, 0.0),
        (429, "²", None, 0.0),
        (429, "", None, 0.0),
        (200, "10", None, 0.0),
        (410, "10", None, 0.0),
    ],
)
def test_pause_for_which_the_metadata_service_asks_is_kept_until_shortly_before_something_is_due(
    status: int, asked: str, due: float | None, pause: float
) -> None:
    assert asked_pause(HttpReply(status, b"", {"retry-after": asked}), due) == pause
    assert asked_pause(TransportFailure("refused"), due) == 0


def test_a_look_does_not_end_the_pause_for_which_the_metadata_service_asks() -> None:
    class Closed(threading.Event):
        """Ends the poller at its first wait."""

        waited: list[float | None] = []  # noqa: RUF012  one instance

        def wait(self, timeout: float | None = None) -> bool:
            self.waited.append(timeout)
            self.set()
            return True

    service, heard = Service(), list[Observation]()
    service.get = lambda: HttpReply(429, b"", {"retry-after": "10"})  # type: ignore[method-assign]
    it = worker(service, heard)
    it._closed = Closed()
    it.look()
    it._poll_loop()
    assert Closed.waited == [10.0] and len(heard) == 1


def test_same_bytes_are_read_once_and_still_seen_each_time() -> None:
    it = worker(Service(), [])
    good, other = Service().get(), HttpReply(200, b'{"DocumentIncarnation": 9, "Events": []}')
    first = it._read_answer(good)
    assert isinstance(first, DocumentRead) and it._read_answer(good) is first
    assert isinstance(it._read_answer(TransportFailure("refused")), PollFailed)
    again = it._read_answer(good)
    assert isinstance(again, DocumentRead) and again == first
    assert isinstance(found := it._read_answer(other), DocumentRead) and found.document.incarnation == 9


@pytest.mark.parametrize(
    ("ran", "ok", "detail"),
    [
        (HookResult("done", 0, "all\n", 1), True, ""),
        (HookResult("failed", 3, "one\nlast words\n\n", 1), False, "exit code 3: last words"),
        (HookResult("failed", None, "", 1), False, "it could not be started"),
        (HookResult("late", -15, "x", 60.2), False, "past its deadline after 60 s"),
        (HookResult("stopped", -15, "", 1), False, "stopped"),
    ],
)
def test_end_of_a_hook_is_reported_in_a_short_sentence(ran: HookResult, ok: bool, detail: str) -> None:
    class Ending(Hooks):
        def start(self, name: str, hook: Hook, event: Mapping[str, Any], done: Callable[[HookResult], None]) -> HangingRun:
            assert hook.deadline == 7
            done(ran)
            return HangingRun(done)

    heard: list[Observation] = []
    worker(Service(), heard, Ending()).run_hook(RunHook(4, "prepare", None, 1, 7))
    assert heard == [HookEnded(4, ok, detail)]


def test_real_folder_is_made_and_readable_by_its_owner_alone(running: Running) -> None:
    agent = running.start(disk=DiskFolder(running.folder / "state"))
    until(lambda: agent.health().reasons == (), "ready")
    assert (running.folder / "state").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("before", "now", "another"),
    [
        (Machine("vm_1", resource_id="/rg-1/vm_1"), Machine("VM_1", resource_id="/RG-1/vm_1"), False),
        (Machine("vm_1", resource_id="/rg-1/vm_1"), Machine("vm_1", resource_id="/rg-2/vm_1"), True),
        (Machine("vm_1"), Machine("vm_1", resource_id="/rg-2/vm_1"), False),
        (Machine("vm_1", resource_id="/rg-1/vm_1"), Machine("vm_2", resource_id="/rg-1/vm_2"), True),
    ],
)
def test_state_of_a_machine_of_one_name_in_another_resource_group_is_set_aside(before: Machine, now: Machine, another: bool) -> None:
    disk = CuttableDisk()
    disk.write(STATE, b"x")
    assert disown(disk, before, now) is another
    assert (disk.read(STATE) is None) is another
