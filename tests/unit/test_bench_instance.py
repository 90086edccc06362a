"""Measurements whose processes are held to the size of an instance."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import parse
from bench.tools import instance as module
from bench.tools.instance import NotHeldError, instance


@pytest.fixture(autouse=True)
def folders_in_place_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel removes a group with its files; a folder needs help."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)


def read(group: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in group.iterdir()}


def test_groups_of_version_2_have_the_limits_and_go_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    with instance(512, tmp_path) as held:
        [group] = held.groups
        assert read(group) == {"cpu.max": "25000 100000", "memory.max": "822083584"}
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not group.exists()


def test_groups_of_version_1_have_the_limits(tmp_path: Path) -> None:
    for name in ("cpu", "memory"):
        (tmp_path / name).mkdir()
    with instance(2048, tmp_path) as held:
        cpu, memory = held.groups
        assert read(cpu) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}
        assert read(memory) == {"memory.limit_in_bytes": str(2320 * 2**20)}
    assert not cpu.exists() and not memory.exists()


def test_command_joins_each_group_and_passes_its_arguments_on(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    with instance(512, tmp_path) as held:
        code = "import os, sys; print(os.getpid(), *sys.argv[1:])"
        ran = subprocess.run(held.command([sys.executable, "-c", code, "a b", "'"]), capture_output=True, text=True, check=True)
        assert ran.stdout == f"{(held.groups[0] / 'cgroup.procs').read_text().strip()} a b '\n"
        assert held.processes == 1


@pytest.mark.parametrize(("stat", "seconds"), [("throttled_usec 2500000", 2.5), ("throttled_time 2500000000", 2.5), ("nr_periods 3", 0.0)])
def test_pauses_are_read_in_both_versions(tmp_path: Path, stat: str, seconds: float) -> None:
    (tmp_path / "cgroup.controllers").write_text("")
    with instance(512, tmp_path) as held:
        (held.groups[0] / "cpu.stat").write_text(f"nr_bursts 0\n{stat}\n")
        assert held.paused() == seconds


def test_machine_without_control_groups_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    with pytest.raises(NotHeldError, match="cannot be held to 512 MB here"), instance(512, tmp_path):
        pass
    assert not list((tmp_path / "cpu").iterdir()) and module.HELD.get() is None


def test_size_is_one_of_an_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["herd", "--as", "512"]).size == 512 and parse(["herd"]).size is None
    with pytest.raises(SystemExit):
        parse(["herd", "--as", "500"])
    assert "512, 2048, 4096" in capsys.readouterr().err
