"""The agent's memory over crashes: the old or the new state, whole, whatever a crash leaves; and what becomes of unreadable files."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.maintenance.agent import journal
from shared.maintenance.agent.journal import MARK, REPORTS, STATE, DiskFolder, Journal, ReportBacklog, decode, encode
from shared.maintenance.agent.model import EventPhase, EventRecord, NodeState, ScheduledEvent
from tests.paths import ROOT
from tests.unit.maintenance.agent.agent_node import START, VM, Node, event
from tests.unit.maintenance.agent.cuttable_disk import Cut, CuttableDisk


def states() -> list[NodeState]:
    """A life: seen, preparing (disabled), prepared, approved, gone, restored."""
    node = Node()
    found = [node.state]
    node.see(event(in_s=20))
    found.append(node.state)
    node.hook()
    found.append(node.state)
    node.post()
    node.see()
    found.append(node.state)
    node.hook()
    node.hook()
    found.append(node.state)
    assert [state.disabled for state in found] == [False, True, True, True, False]
    return found


LIFE = states()


def kept(state: NodeState) -> bytes:
    return encode(state)


def test_all_that_is_to_be_kept_comes_back() -> None:
    record = EventRecord(
        event=ScheduledEvent("e1", "E1", "Reboot", "Started", START, "User", 30, (VM, "vm-2"), "why", rehearsal=True),
        phase=EventPhase.RESTORE_FAILED,
        seen_at=1,
        listed=False,
        prepared_at=2,
        prepared_boot="b",
        approve_intent=3,
        approved_at=4,
        started_at=5,
        done_at=6,
        outcome="completed",
        reason="restore failed: \u00fc\n",
        observed_ms=7,
        notes=frozenset({"x", "y"}),
    )
    state = NodeState(boot_id="b", disabled=True, events={"e1": record})
    assert decode(encode(state)) == state


def test_state_of_the_process_starts_over() -> None:
    busy = replace(LIFE[1].events["e1"], tries=3, posts=2, posting=True, hook_wanted="emergency", retry_at=7.0, unsure=True)
    state = replace(LIFE[1], events={"e1": busy}, runs=9, incarnation=4)
    record = decode(encode(state)).events["e1"]
    assert record == replace(LIFE[1].events["e1"], tries=0)
    assert decode(encode(state)).incarnation is None


def test_folder_keeps_the_state_and_our_mark(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    keeper = Journal(DiskFolder(folder))
    assert keeper.load() == (NodeState(), "none", False)
    marks = []
    for state in LIFE:
        assert keeper.save(state)
        assert not keeper.save(replace(state, runs=99)), "nothing to keep has changed"
        loaded = Journal(DiskFolder(folder)).load()
        assert (kept(loaded.state), loaded.found) == (kept(state), "kept")
        marks.append((folder / MARK).exists())
    assert marks == [state.disabled for state in LIFE]
    assert stat.S_IMODE((folder / STATE).stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(each.name for each in folder.iterdir()) == [STATE]


DAMAGED = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-20],
    "without its checksum": lambda data: data.partition(b"\n")[0],
    "a bit turned": lambda data: data.replace(b"PREPARING", b"PREPARED!", 1),
    "zeros": lambda data: b"\0" * len(data),
    "something else": lambda data: b"{}\n",
    "of another version": lambda data: _signed(data.replace(b'"format":1', b'"format":2')),
    "of another shape": lambda data: _signed(b'{"format":1,"boot_id":"b","disabled":true,"events":[{"x":1}]}\n'),
    "no object": lambda data: _signed(b"[]\n"),
}


def _signed(data: bytes) -> bytes:
    body = data.partition(b"\n")[0]
    return body + f"\n{zlib.crc32(body):08x}\n".encode()


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_state_that_cannot_be_read_is_set_aside_and_our_mark_still_counts(damage: Any, tmp_path: Path) -> None:
    Journal(DiskFolder(tmp_path)).save(LIFE[1])
    good = (tmp_path / STATE).read_bytes()
    for number in (1, 2):
        (tmp_path / STATE).write_bytes(damage(good))
        assert Journal(DiskFolder(tmp_path)).load() == (NodeState(), "corrupt", True)
        assert (tmp_path / f"{STATE}.bad-{number}").read_bytes() == damage(good) and not (tmp_path / STATE).exists()
    assert Journal(DiskFolder(tmp_path)).load() == (NodeState(), "none", True)


def test_mark_that_a_crash_left_behind_is_removed_while_the_state_is_there(tmp_path: Path) -> None:
    Journal(DiskFolder(tmp_path)).save(LIFE[0])
    (tmp_path / MARK).write_bytes(b"x")
    assert Journal(DiskFolder(tmp_path)).load().found == "kept"
    assert not (tmp_path / MARK).exists()


def test_disk_that_fails_is_reported_and_the_old_state_stays(tmp_path: Path) -> None:
    keeper = Journal(DiskFolder(tmp_path))
    keeper.save(LIFE[0])
    with patch.object(os, "fsync", side_effect=OSError(28, "No space left on device")), pytest.raises(OSError, match="No space"):
        keeper.save(LIFE[1])
    assert kept(Journal(DiskFolder(tmp_path)).load().state) == kept(LIFE[0])
    assert keeper.save(LIFE[1]), "and the next attempt does not think it is kept"


# -- crashes at each step


def live(disk: CuttableDisk) -> tuple[int, bool]:
    """Save one state after the other until the machine stops: how many were kept for sure, and whether it stopped."""
    keeper, done = Journal(disk), 0
    try:
        keeper.load()
        for state in LIFE:
            keeper.save(state)
            done += 1
    except Cut:
        return done, True
    return done, False


def check_crashes(choose: Any = lambda ways: 0) -> int:
    """Cut the life after each number of steps: what is loaded is the last state kept, or the one being saved."""
    cut = 0
    while True:
        disk = CuttableDisk(cut)
        done, stopped = live(disk)
        disk.crash(choose)
        disk.cut_after = None
        loaded = Journal(disk).load()
        possible = [NodeState(), *LIFE][done : done + 2]
        assert kept(loaded.state) in [kept(state) for state in possible], f"after {cut} steps"
        assert loaded.found == "kept" or (done == 0 and loaded.found == "none"), f"after {cut} steps: {loaded.found}"
        # A node that may be out of service always has the mark, should its state be lost.
        if loaded.state.disabled:
            assert loaded.marker, f"after {cut} steps"
        assert (disk.read(MARK) is not None) is loaded.state.disabled
        if not stopped:
            return cut
        cut += 1


@given(st.data())
def test_crash_between_any_two_steps_leaves_the_old_or_the_new_state(data: st.DataObject) -> None:
    assert check_crashes(lambda ways: data.draw(st.integers(0, ways - 1))) > 20


def _all_choices(ways: int, pick: int) -> int:
    return min(pick, ways - 1)


WRONG = {
    "content not flushed": lambda disk, name, data: _careless(disk, name, data, flush=False),
    "names not flushed": lambda disk, name, data: _careless(disk, name, data, names=False),
    "written over in place": lambda disk, name, data: (disk.write(name, data), disk.flush(name), disk.flush_names()),
}


def _careless(disk: Any, name: str, data: bytes, *, flush: bool = True, names: bool = True) -> None:
    disk.write(f"{name}.new", data)
    if flush:
        disk.flush(f"{name}.new")
    disk.rename(f"{name}.new", name)
    if names:
        disk.flush_names()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_careless_way_to_save_is_found_out(wrong: Any) -> None:
    with patch.object(journal, "replace", wrong):
        found = 0
        for pick in (0, 1, 2):
            try:
                check_crashes(lambda ways, pick=pick: _all_choices(ways, pick))  # type: ignore[misc]
            except AssertionError:
                found += 1
    assert found


def test_mark_written_after_the_state_is_found_out() -> None:
    class Careless(Journal):
        def save(self, state: NodeState) -> bool:
            journal.replace(self._disk, STATE, encode(state))
            if state.disabled:
                journal.replace(self._disk, MARK, b"x")
            return True

    with patch(f"{__name__}.Journal", Careless), pytest.raises(AssertionError):
        check_crashes()


KILLED = """
import sys
from pathlib import Path
from dataclasses import replace
from shared.maintenance.agent.journal import DiskFolder, Journal
from shared.maintenance.agent.model import ScheduledEvent, NodeState, EventPhase, EventRecord
keeper = Journal(DiskFolder(Path(sys.argv[1])))
state = NodeState(boot_id="b")
record = EventRecord(ScheduledEvent("e1", "E1", "Freeze", "Scheduled"), EventPhase.WAITING, 0)
number = 0
while True:
    number += 1
    keeper.save(replace(state, disabled=number % 2 == 1, events={"e1": replace(record, seen_at=number)}))
    print(number, flush=True)
"""


def test_process_that_is_killed_while_it_saves_leaves_a_state_that_is_whole(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    last = 0
    for _ in range(200):
        last = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait(60)
    process.stdout.close()
    last = int(rest[-1]) if rest else last
    loaded = Journal(DiskFolder(tmp_path)).load()
    assert loaded.found == "kept" and loaded.state.events["e1"].seen_at in (last, last + 1)
    assert loaded.marker or not loaded.state.disabled


# -- reports that wait


def test_reports_wait_in_order_over_a_restart(tmp_path: Path) -> None:
    backlog = ReportBacklog(DiskFolder(tmp_path))
    for seq in range(5):
        backlog.add({"seq": seq})
    assert [each["seq"] for each in backlog.first(3)] == [0, 1, 2]
    backlog.delivered(2)
    again = ReportBacklog(DiskFolder(tmp_path))
    assert [each["seq"] for each in again.first(10)] == [2, 3, 4] and len(again) == 3
    again.delivered(3)
    assert len(ReportBacklog(DiskFolder(tmp_path))) == 0 and not (tmp_path / REPORTS).exists()


def test_line_that_a_crash_cut_is_dropped_and_the_next_is_whole(tmp_path: Path) -> None:
    (tmp_path / REPORTS).write_bytes(b'{"seq":1}\n[]\n{"seq":')
    backlog = ReportBacklog(DiskFolder(tmp_path))
    backlog.add({"seq": 3})
    assert [each["seq"] for each in ReportBacklog(DiskFolder(tmp_path)).first(9)] == [1, 3]


def test_of_too_many_reports_the_oldest_go(tmp_path: Path) -> None:
    backlog = ReportBacklog(DiskFolder(tmp_path), most=10)
    for seq in range(11):
        backlog.add({"seq": seq})
    assert [each["seq"] for each in ReportBacklog(DiskFolder(tmp_path)).first(99)] == [6, 7, 8, 9, 10]


@given(st.integers(0, 30), st.data())
def test_report_that_was_kept_is_there_after_a_crash(cut: int, data: st.DataObject) -> None:
    disk, kept_seqs = CuttableDisk(cut), []
    try:
        backlog = ReportBacklog(disk)
        for seq in range(8):
            backlog.add({"seq": seq})
            kept_seqs.append(seq)
    except Cut:
        pass
    disk.crash(lambda ways: data.draw(st.integers(0, ways - 1)))
    disk.cut_after = None
    seqs = [each["seq"] for each in ReportBacklog(disk).first(99)]
    assert seqs[: len(kept_seqs)] == kept_seqs and len(seqs) <= len(kept_seqs) + 1
