"""Recipes switch off what was on, switch on just that, may be cut off anywhere, and respect what an operator did."""

from __future__ import annotations

import json
import queue
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.maintenance.agent.config.config import load
from shared.maintenance.agent.hooks.recipes import cassandra, note, systemd
from shared.maintenance.agent.hooks.runner import HookResult, ProcessRunner

ID = "6f4b7c1e-9d0a-4a57-8a64-0d1f2e3c4b5a"
NODETOOL = """#!/bin/sh
cd "$(dirname "$0")"
echo "nodetool $*" >> calls
for verb; do :; done
[ -e "fail-$verb" ] && {{ echo "nodetool: Failed to connect to '127.0.0.1:7199'" >&2; exit 1; }}
case $verb in
status*?) [ "$verb" = status ] || {{ [ -e "${{verb#status}}" ] && echo running || echo "not running"; }} ;;
disable*) rm -f "${{verb#disable}}" ;;
enable*) touch "${{verb#enable}}" ;;
drain) rm -f binary gossip ;;
info) echo "ID                     : {id}"; echo "Gossip active          : true" ;;
esac
[ "$verb" = status ] && {{ echo "UN  10.0.0.9  1 GiB  16  66%  other-id  r1"; echo "$(cat ring) 10.0.0.4  1 GiB  16  66%  {id}  r2"; }}
exit 0
"""
SYSTEMCTL = """#!/bin/sh
cd "$(dirname "$0")"
echo "systemctl $*" >> calls
verb=$1; for unit; do :; done
[ -e "fail-$verb" ] && exit 1
case $verb in
show) [ -e "$unit" ] && cat "$unit" || echo inactive ;;
stop) echo inactive > "$unit" ;;
start) echo active > "$unit" ;;
restart) touch binary gossip ;;
esac
exit 0
"""
EVENT: dict[str, Any] = {"event_id": "f1"}


class Node:
    """A machine of files: what is on is a file, and programs note how they were called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, monkeypatch
        self.state = folder / "state"
        self.state.mkdir()
        for name, text in (("nodetool", NODETOOL.format(id=ID)), ("systemctl", SYSTEMCTL)):
            path = folder / name
            path.write_text(text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        (folder / "ring").write_text("UN")
        monkeypatch.setenv("TOCSIN_STATE", str(self.state))
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        self.boot("first")
        self.cassandra()

    def cassandra(self, **options: Any) -> None:
        usual = {"nodetool": "nodetool", "arguments": ["-p", "7199"], "finish": "nothing", "service": "cassandra", "thrift": False}
        self._patch.setenv("TOCSIN_RECIPE", json.dumps(usual | options))

    def systemd(self, *units: str) -> None:
        self._patch.setenv("TOCSIN_RECIPE", json.dumps({"units": units, "systemctl": "systemctl"}))

    def boot(self, number: str) -> None:
        (self.folder / "boot").write_text(f"{number}\n")
        self._patch.setattr(note, "BOOT", self.folder / "boot")

    def put(self, *on: str) -> None:
        for part in on:
            (self.folder / part).touch()

    def on(self) -> set[str]:
        return {part for part in ("binary", "gossip", "thrift") if (self.folder / part).exists()}

    def calls(self) -> list[str]:
        """Return the calls since the last look, without queries."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.removeprefix("nodetool -p 7199 ") for line in lines if " status" not in line and " show" not in line]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def test_cassandra_leaves_clients_first_and_comes_back_the_other_way_round(node: Node) -> None:
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT) and node.on() == set()
    assert node.calls() == ["disablebinary", "disablegossip"]
    assert cassandra.restore(EVENT) and node.on() == {"binary", "gossip"}
    assert node.calls() == ["enablegossip", "enablebinary"]
    assert cassandra.verify(EVENT)


def test_cassandra_before_4_leaves_thrift_too(node: Node) -> None:
    node.cassandra(thrift=True)
    node.put("binary", "gossip", "thrift")
    assert cassandra.prepare(EVENT) and node.calls() == ["disablethrift", "disablebinary", "disablegossip"]
    assert cassandra.restore(EVENT) and node.on() == {"binary", "gossip", "thrift"}


def test_cassandra_flushes_where_it_is_configured_to(node: Node) -> None:
    node.cassandra(finish="flush")
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT) and node.calls() == ["disablebinary", "disablegossip", "flush"]
    assert cassandra.restore(EVENT) and node.calls() == ["enablegossip", "enablebinary"]


def test_cassandra_that_was_drained_comes_back_by_a_restart(node: Node) -> None:
    node.cassandra(finish="drain")
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT) and node.calls() == ["disablebinary", "disablegossip", "drain"]
    assert cassandra.restore(EVENT) and node.calls() == ["systemctl restart cassandra"]
    assert cassandra.verify(EVENT)


def test_emergency_does_without_what_takes_long(node: Node) -> None:
    node.cassandra(finish="drain")
    node.put("binary", "gossip")
    assert cassandra.emergency(EVENT) and node.calls() == ["disablebinary", "disablegossip"]


def test_what_an_operator_had_switched_off_stays_off(node: Node) -> None:
    node.put("gossip")
    assert cassandra.prepare(EVENT) and cassandra.restore(EVENT)
    assert node.on() == {"gossip"} and cassandra.verify(EVENT)


def test_node_that_an_operator_had_drained_is_left_as_it_is(node: Node) -> None:
    node.cassandra(finish="drain")
    assert cassandra.prepare(EVENT) and cassandra.restore(EVENT) and cassandra.verify(EVENT)
    assert node.calls() == [] and node.on() == set()


@pytest.mark.parametrize("verb", ["disablebinary", "disablegossip", "flush"])
def test_prepare_that_failed_half_way_is_done_again_and_undone_whole(node: Node, verb: str) -> None:
    node.cassandra(finish="flush")
    node.put("binary", "gossip", f"fail-{verb}")
    assert not cassandra.prepare(EVENT)
    (node.folder / f"fail-{verb}").unlink()
    assert cassandra.prepare(EVENT) and node.on() == set()
    assert cassandra.restore(EVENT) and node.on() == {"binary", "gossip"}


def test_restore_that_failed_half_way_is_done_again(node: Node) -> None:
    node.put("binary", "gossip", "fail-enablebinary")
    assert cassandra.prepare(EVENT) and not cassandra.restore(EVENT)
    (node.folder / "fail-enablebinary").unlink()
    assert cassandra.restore(EVENT) and node.on() == {"binary", "gossip"}
    node.calls()
    assert cassandra.restore(EVENT) and node.calls() == [], "once is enough"


def test_cassandra_that_cannot_be_asked_is_not_prepared(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.put("binary", "gossip", "fail-statusbinary")
    assert not cassandra.prepare(EVENT)
    assert "Failed to connect" in capfd.readouterr().err and not (node.state / "cassandra.json").exists()


def test_after_a_reboot_nothing_is_switched_on(node: Node) -> None:
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT)
    node.boot("second")
    node.calls()
    assert cassandra.restore(EVENT) and node.calls() == []
    assert not cassandra.verify(EVENT), "not until Cassandra is up"
    node.put("binary", "gossip")
    assert cassandra.verify(EVENT)


def test_note_of_an_earlier_event_is_not_taken_for_this_one(node: Node) -> None:
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT) and cassandra.restore(EVENT)
    (node.folder / "binary").unlink()
    assert cassandra.prepare(EVENT) and cassandra.restore(EVENT)
    assert node.on() == {"gossip"}, "switched off by an operator in between"


def test_verify_wants_the_ring_to_see_this_very_node_up_and_normal(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.put("binary", "gossip")
    assert cassandra.prepare(EVENT) and cassandra.restore(EVENT)
    (node.folder / "ring").write_text("DN")
    assert not cassandra.verify(EVENT) and f"host {ID} as ['DN']" in capfd.readouterr().err


def test_note_that_cannot_be_read_switches_nothing_on(node: Node) -> None:
    (node.state / "cassandra.json").write_text("{")
    assert cassandra.restore(EVENT) and node.calls() == []


def test_systemd_stops_in_order_and_starts_the_other_way_round(node: Node) -> None:
    node.systemd("web.service", "db.service", "idle.service")
    for unit in ("web.service", "db.service"):
        (node.folder / unit).write_text("active")
    assert systemd.prepare(EVENT) and node.calls() == ["systemctl stop web.service", "systemctl stop db.service"]
    assert not systemd.verify(EVENT)
    assert systemd.restore(EVENT) and node.calls() == ["systemctl start db.service", "systemctl start web.service"]
    assert systemd.verify(EVENT) and systemd.restore(EVENT) and node.calls() == []


def test_systemd_that_was_cut_off_remembers_what_was_active(node: Node) -> None:
    node.systemd("web.service", "db.service")
    for unit in ("web.service", "db.service"):
        (node.folder / unit).write_text("active")
    node.put("fail-stop")
    assert not systemd.prepare(EVENT)
    (node.folder / "fail-stop").unlink()
    (node.folder / "web.service").write_text("inactive")
    assert systemd.prepare(EVENT) and systemd.restore(EVENT) and systemd.verify(EVENT)


@pytest.mark.parametrize("state", ["", "Unit not found.", "Failed to connect to bus"])
def test_unit_of_unknown_state_fails_the_hook(node: Node, state: str) -> None:
    node.systemd("web.service")
    (node.folder / "web.service").write_text(state)
    assert not systemd.prepare(EVENT)


def test_program_that_is_missing_fails_the_hook_with_its_name(node: Node, capfd: pytest.CaptureFixture[str]) -> None:
    node.cassandra(nodetool="/no/such/nodetool")
    assert not cassandra.prepare(EVENT) and "/no/such/nodetool cannot be run" in capfd.readouterr().err


@pytest.mark.parametrize("hook", [cassandra.prepare, cassandra.emergency, cassandra.restore, cassandra.verify])
def test_each_hook_may_be_run_on_a_node_that_nothing_was_done_to(node: Node, hook: Callable[[dict[str, Any]], bool]) -> None:
    node.put("binary", "gossip")
    assert hook(EVENT)


def test_recipe_of_a_file_of_settings_runs_as_the_agent_runs_it(node: Node) -> None:
    path = node.folder / "agent.toml"
    recipe = f"name = 'cassandra'\nnodetool = '{node.folder}/nodetool'\narguments = ['-p', '7199']"
    path.write_text(f"state = '{node.state}'\n[recipe]\n{recipe}\n")
    config, processes = load(path, {}), ProcessRunner(node.state / "hooks")
    node.put("binary", "gossip")
    ended: queue.SimpleQueue[HookResult] = queue.SimpleQueue()
    for kind in ("prepare", "restore", "verify"):
        processes.start(kind, config.hooks[kind], EVENT | {"state": str(node.state)}, ended.put)
        ran = ended.get(timeout=60)
        assert ran.outcome == "done", ran.output
    assert [line.rpartition(" ")[2] for line in node.calls()] == [
        "disablebinary", "disablegossip", "flush", "enablegossip", "enablebinary", "info"
    ]  # fmt: skip
