"""A process is called ended only on proof; every doubt leaves it alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.core.process_identity import ProcessIdentity

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")

PID, GONE = os.getpid(), 4_000_000
CHILD = """
import sys
from pathlib import Path
from shared.core.process_identity import ProcessIdentity
print(ProcessIdentity(markers=Path(sys.argv[1])).name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def me(tmp_path: Path) -> ProcessIdentity:
    return ProcessIdentity(markers=tmp_path)


@pytest.fixture
def child(me: ProcessIdentity, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process of this machine, and the name it gives itself."""
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def machine_of(identity: ProcessIdentity) -> str:
    return identity.name.partition(" ")[0]


def test_living_process_and_this_one_have_not_ended(me: ProcessIdentity, child: tuple[subprocess.Popen[str], str]) -> None:
    process, name = child
    assert name.split()[:2] == [machine_of(me), str(process.pid)]
    assert not me.has_ended(name)
    assert not me.has_ended(me.name)


def test_only_the_first_process_of_a_machine_knows_of_none_before_it(me: ProcessIdentity, tmp_path: Path) -> None:
    assert me.first
    assert not ProcessIdentity(markers=tmp_path).first


def test_frozen_process_has_not_ended(me: ProcessIdentity, child: tuple[subprocess.Popen[str], str]) -> None:
    process, name = child
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert not me.has_ended(name)


def test_killed_process_has_ended_before_and_after_its_parent_collects_it(
    me: ProcessIdentity, child: tuple[subprocess.Popen[str], str]
) -> None:
    process, name = child
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert me.has_ended(name), "a zombie"
    process.wait()
    assert me.has_ended(name)


def test_number_that_a_later_process_has_got_belongs_to_no_living_owner(me: ProcessIdentity) -> None:
    machine, pid, started = me.name.split()
    assert me.has_ended(f"{machine} {pid} {int(started) - 1}")


@pytest.mark.parametrize(
    "change", ["", "x", "{machine}", "{machine} 1", "{machine} x 1", "{machine} 0 1", "{machine} -5 1", "{machine} 1 x"]
)
def test_name_that_cannot_be_read_is_unknown(me: ProcessIdentity, change: str) -> None:
    assert not me.has_ended(change.format(machine=machine_of(me)))


def test_process_of_another_machine_is_unknown(me: ProcessIdentity) -> None:
    assert me.has_ended(f"{machine_of(me)} {GONE} 1")
    assert not me.has_ended(f"{'0' * 32} {GONE} 1")


def plant(tmp_path: Path, *, boot: str = "b" * 36, pid_space: str = "pid:[1]", time_space: str = "time:[2]", me: int = PID) -> Path:
    """A folder like /proc that shows this process, and process 77 as a living one."""
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(boot + "\n")
    for pid in (PID, 77):
        (proc / str(pid) / "ns").mkdir(parents=True)
        (proc / str(pid) / "task" / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "stat").write_text(f"{pid} (a ) name) S {' '.join(['0'] * 18)} 500 0\n")
        for kind, space in (("pid", pid_space), ("time", time_space)):
            (proc / str(pid) / "ns" / kind).symlink_to(space)
    (proc / "self").symlink_to(str(me))
    return proc


def exists(pid: int, number: int) -> None:
    """Signal 0 finds the process."""


def hidden(pid: int, number: int) -> None:
    raise PermissionError


def absent(pid: int, number: int) -> None:
    raise ProcessLookupError


@pytest.mark.parametrize(
    "other",
    [
        {"boot": "c" * 36},
        {"pid_space": "pid:[9]"},
        {"time_space": "time:[9]"},
    ],
)
def test_other_boot_or_namespace_is_another_machine(tmp_path: Path, other: dict[str, str]) -> None:
    markers = tmp_path / "markers"
    markers.mkdir()
    one = ProcessIdentity(plant(tmp_path / "1"), markers, {}, absent)
    two = ProcessIdentity(plant(tmp_path / "2", **other), markers, {}, absent)  # type: ignore[arg-type]
    assert one.name and two.name
    assert one.has_ended(f"{machine_of(one)} 99 1")
    assert not two.has_ended(f"{machine_of(one)} 99 1")


def test_machines_of_one_memory_image_are_told_apart_by_the_marker_and_the_instances_name(tmp_path: Path) -> None:
    proc, markers = plant(tmp_path), [tmp_path / "a", tmp_path / "b"]
    for folder in markers:
        folder.mkdir()
    names = [
        ProcessIdentity(proc, markers[0], {}, absent),
        ProcessIdentity(proc, markers[1], {}, absent),
        ProcessIdentity(proc, markers[0], {"WEBSITE_INSTANCE_ID": "i1"}, absent),
    ]
    assert len({machine_of(each) for each in names}) == 3
    assert machine_of(ProcessIdentity(proc, markers[0], {}, absent)) == machine_of(names[0])


def overwrite(path: Path, text: str) -> None:
    path.write_text(text)


def broken(spoil: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(tmp_path: Path) -> Path:
        proc = plant(tmp_path)
        spoil(proc)
        return proc

    return make


@pytest.mark.parametrize(
    "proc",
    [
        lambda tmp_path: tmp_path / "none",
        lambda tmp_path: plant(tmp_path, me=77),
        lambda tmp_path: plant(tmp_path, boot=""),
        broken(lambda proc: (proc / "sys/kernel/random/boot_id").unlink()),
        broken(lambda proc: (proc / str(PID) / "ns" / "time").unlink()),
        broken(lambda proc: overwrite(proc / str(PID) / "stat", "1 (x) S 1")),
    ],
    ids=["no /proc", "another /proc", "empty boot id", "no boot id", "no time namespace", "strange stat"],
)
def test_process_that_cannot_be_identified_has_no_name_and_judges_nobody(tmp_path: Path, proc: Callable[[Path], Path]) -> None:
    found = ProcessIdentity(proc(tmp_path), tmp_path, {}, absent)
    assert found.name == ""
    assert not found.has_ended(f" {GONE} 1")


def test_process_that_proc_hides_is_unknown(tmp_path: Path) -> None:
    found = ProcessIdentity(plant(tmp_path), tmp_path, {}, hidden)
    assert not found.has_ended(f"{machine_of(found)} 99 1")


def test_zombie_with_a_running_thread_has_not_ended(tmp_path: Path) -> None:
    proc = plant(tmp_path)
    found = ProcessIdentity(proc, tmp_path, {}, exists)
    name = f"{machine_of(found)} 77 500"
    assert not found.has_ended(name)
    (proc / "77" / "stat").write_text(f"77 (x) Z {' '.join(['0'] * 18)} 500 0\n")
    assert found.has_ended(name)
    (proc / "77" / "task" / "78").mkdir()
    assert not found.has_ended(name)


def test_marker_that_others_may_have_written_identifies_nothing(tmp_path: Path) -> None:
    marker = tmp_path / f"tocsin-machine-{os.getuid()}"
    marker.write_text("0" * 32)
    marker.chmod(0o644)
    assert ProcessIdentity(markers=tmp_path).name == ""
    marker.chmod(0o600)
    assert ProcessIdentity(markers=tmp_path).name != ""
    marker.unlink()
    marker.symlink_to(tmp_path / "elsewhere")
    assert ProcessIdentity(markers=tmp_path).name == ""


def test_named_pipe_in_place_of_the_marker_stops_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    os.mkfifo(tmp_path / f"tocsin-machine-{os.getuid()}", 0o666)
    # In a process of its own, because one that waits for the pipe's writer cannot be cancelled.
    found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout == "\n"
