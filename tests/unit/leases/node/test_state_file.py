"""The locked file: it proves that a predecessor is gone, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.leases.node import state_file
from shared.leases.node.state_file import NameInUse, StateFile


def test_what_a_process_was_is_proven_gone_to_the_next(tmp_path: Path) -> None:
    first = StateFile(tmp_path, "t:f", "s1")
    assert first.begin("i1") == ()
    assert first.begin("i2") == ("i1",)
    first.close()
    second = StateFile(tmp_path, "t:f", "s1")
    assert second.begin("i3") == ("i2", "i1")
    second.close()


def test_a_lock_that_is_held_says_that_the_name_is_in_use(tmp_path: Path) -> None:
    first = StateFile(tmp_path, "t:f", "s1")
    with pytest.raises(NameInUse):
        StateFile(tmp_path, "t:f", "s1")
    StateFile(tmp_path, "t:f", "s2").close()
    first.close()


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    body = "import sys; from pathlib import Path; from shared.leases.node.state_file import StateFile\n"
    body += "file = StateFile(Path(sys.argv[1]), 't:f', 's1'); file.begin('i1'); print('begun', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", body, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        assert process.stdout.readline() == b"begun\n"
        with pytest.raises(NameInUse):
            StateFile(tmp_path, "t:f", "s1")
        process.kill()
        process.wait()
    after = StateFile(tmp_path, "t:f", "s1")
    assert after.begin("i2") == ("i1",)
    after.close()


@pytest.mark.parametrize("boot", ["another-boot", ""])
def test_another_boot_or_none_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str) -> None:
    first = StateFile(tmp_path, "t:f", "s1")
    first.begin("i1")
    first.close()
    monkeypatch.setattr(state_file, "boot_id", lambda: boot)
    second = StateFile(tmp_path, "t:f", "s1")
    assert second.begin("i2") == ()
    second.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": 1}', "null"])
def test_a_damaged_file_proves_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "t~f~s1.lease").write_text(text)
    file = StateFile(tmp_path, "t:f", "s1")
    assert file.begin("i1") == ()
    file.close()


def test_only_the_last_incarnations_are_kept(tmp_path: Path) -> None:
    file = StateFile(tmp_path, "t:f", "s1")
    for number in range(20):
        found = file.begin(f"i{number}")
    assert found == tuple(f"i{number}" for number in range(18, 10, -1))
    file.close()
