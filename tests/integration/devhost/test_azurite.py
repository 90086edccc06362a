"""The storage emulator as a child: clear errors, clean ends, no orphans."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from azure.storage.queue.aio import QueueClient

from devhost import azurite as module
from devhost.azurite import LOCK, ROOT, Azurite, AzuriteError, FolderInUse, PortInUse, find_node, take_folder
from tests import waiting
from tests.waiting import wait_until


def alive(pid: int) -> bool:
    try:
        # A zombie counts as dead, because no parent may be left to collect it.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_data_outlives_a_stop_and_the_lock_its_devhost_and_stop_may_be_called_twice(tmp_path: Path) -> None:
    async with Azurite(location=tmp_path) as first:
        async with QueueClient.from_connection_string(first.connection_string, "kept") as queue:
            await queue.create_queue()
            await queue.send_message("here")
        # As if this process were gone: the emulator has the lock too.
        assert first._lock is not None
        first._lock.close()
        with pytest.raises(FolderInUse):
            take_folder(tmp_path)
        first.stop()
        assert first.pid is None
    ports = {"blob": first.blob, "queue": first.queue, "table": first.table}
    async with (
        Azurite(location=tmp_path, **ports) as second,
        QueueClient.from_connection_string(second.connection_string, "kept") as queue,
    ):
        assert [message.content async for message in queue.receive_messages()] == ["here"]


def test_stop_without_start_does_nothing() -> None:
    Azurite(memory=True).stop()


def test_port_in_use_is_named_with_the_variable_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {port} \(Azurite queue\).*AZURITE_QUEUE_PORT="):
            Azurite(queue=port, memory=True).start()


def test_missing_azurite_and_missing_node_point_to_make_setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "SCRIPT", tmp_path / "nothing.js")
    with pytest.raises(AzuriteError, match=r"not installed.*make setup"):
        Azurite(memory=True).start()
    old = tmp_path / "node"
    old.write_text("#!/bin/sh\necho v18.1.0\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AzuriteError, match=r"node 20 .*version 18.*make setup"):
        find_node()


def test_failed_start_says_why_and_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "__azurite_db_table__.json").mkdir()
    broken = Azurite(location=tmp_path)
    with pytest.raises(AzuriteError, match=r"did not start: .*directory"):
        broken.start()
    assert broken.pid is None
    taken = take_folder(tmp_path)
    assert taken is not None
    taken.close()


def test_folder_that_cannot_be_is_explained(tmp_path: Path) -> None:
    location = tmp_path / "file"
    location.write_text("not a folder")
    with pytest.raises(AzuriteError, match=r"/file: File exists"):
        Azurite(location=location).start()


def test_lock_of_a_living_process_refuses_and_one_left_by_a_dead_process_does_not(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / LOCK).write_text(str(gone.pid))
    held = take_folder(tmp_path)
    assert held is not None and (tmp_path / LOCK).read_text() == str(os.getpid())
    with pytest.raises(FolderInUse, match=rf"process {os.getpid()}\).*AZURITE_LOCATION="):
        Azurite(location=tmp_path).start()
    # Held by the emulator that a devhost which was killed has left: it needs a moment.
    (tmp_path / LOCK).write_text(str(gone.pid))
    assert take_folder(tmp_path) is None
    held.close()
    again = take_folder(tmp_path)
    assert again is not None
    again.close()


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_child_ends_with_its_parent(end: str) -> None:
    script = f"""
import os, signal, sys
from devhost.azurite import Azurite
child = Azurite(memory=True)
child.start() if {end!r} == "kill" else child.spawn()
print(child.pid, flush=True)
if {end!r} == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
os._exit(7)
"""
    result = waiting.run([sys.executable, "-c", script], cwd=ROOT)
    assert result.returncode == (-signal.SIGKILL if end == "kill" else 7), result.stderr
    pid = int(result.stdout)
    wait_until(lambda: not alive(pid), "the end of Azurite")
