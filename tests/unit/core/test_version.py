"""The version: in clones, archives, deployed apps and packages, with git and without it."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

from tests.paths import ROOT

FILE = "shared/core/version.py"
NOBODY = {f"GIT_{who}_{what}": "nobody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **NOBODY}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(clone: Path) -> str:
    """Commit everything, even if nothing has changed; return the commit's name as a version shows it."""
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "--allow-empty", "-m", "a change")
    return git(clone, "rev-parse", "HEAD")[:8]


def load(folder: Path, file: str = FILE) -> ModuleType:
    """The module of that folder, loaded alone, as the build backend does."""
    spec = spec_from_file_location("version_of_another_folder", folder / file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def version_in(folder: Path, file: str = FILE) -> str:
    found: str = load(folder, file).version()
    assert str(Version(found)) == found, "normalized by PEP 440"
    return found


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / FILE).read_text()
    assert text.count(old) == 1
    (folder / FILE).write_text(text.replace(old, new))


def copy(folder: Path) -> Path:
    """A folder with the files that the version is made of, as they are in the repository."""
    for name in (FILE, ".gitattributes", ".gitignore", ".git_archival.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    change(folder, load(ROOT).BASE + '"\n', '7.1.0"\n')
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy(tmp_path / "folder")


@pytest.fixture
def clone(folder: Path) -> Path:
    git(folder, "init", "-q", "-b", "main")
    return folder


def test_commits_are_counted_since_the_base_version_was_set(clone: Path) -> None:
    first = commit(clone)
    assert version_in(clone) == f"7.1.0.dev0+g{first}"
    (clone / "a.txt").touch()
    commit(clone)
    commit(clone)
    last = commit(clone)
    assert version_in(clone) == f"7.1.0.dev3+g{last}"


def test_another_base_version_begins_at_0_and_other_changes_of_its_file_go_on(clone: Path) -> None:
    commit(clone)
    change(clone, '"7.1.0"', '"7.2.0"')
    base = commit(clone)
    assert version_in(clone) == f"7.2.0.dev0+g{base}"
    change(clone, "_PATIENCE: Final = 5.0", "_PATIENCE: Final = 6.0")
    other = commit(clone)
    assert version_in(clone) == f"7.2.0.dev1+g{other}"


def test_a_linked_worktree_has_a_version_of_its_own(clone: Path, tmp_path: Path) -> None:
    first = commit(clone)
    git(clone, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    commit(clone)
    assert version_in(tmp_path / "linked") == f"7.1.0.dev0+g{first}"


def test_a_shallow_clone_counts_the_commits_that_it_has(clone: Path, tmp_path: Path) -> None:
    for _ in range(5):
        last = commit(clone)
    git(tmp_path, "clone", "-q", "--depth", "3", f"file://{clone}", "shallow")
    assert version_in(tmp_path / "shallow") == f"7.1.0.dev2+g{last}"


def test_a_partial_clone_names_its_commit_and_fetches_nothing(clone: Path, tmp_path: Path) -> None:
    commit(clone)
    change(clone, '"7.1.0"', '"7.2.0"')
    last = commit(clone)
    git(clone, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{clone}", "partial")
    lacking = git(tmp_path / "partial", "rev-list", "--objects", "--missing=print", "HEAD").count("?")
    assert lacking > 0
    assert version_in(tmp_path / "partial") == f"7.2.0.dev0+g{last}"
    assert git(tmp_path / "partial", "rev-list", "--objects", "--missing=print", "HEAD").count("?") == lacking


def test_an_archive_names_its_commit(clone: Path, tmp_path: Path) -> None:
    commit(clone)
    last = commit(clone)
    git(clone, "archive", "--prefix=unpacked/", "-o", str(tmp_path / "archive.tar"), "HEAD")
    subprocess.run(["tar", "-xf", tmp_path / "archive.tar"], cwd=tmp_path, check=True)
    assert version_in(tmp_path / "unpacked") == f"7.1.0.dev0+g{last}"


def test_a_folder_without_history_has_the_base_version(folder: Path) -> None:
    assert version_in(folder) == "7.1.0.dev0"


@pytest.mark.parametrize("state", ["no commit yet", "a broken folder .git", "a broken file .git", "no program git"])
def test_git_that_gives_no_answer_leaves_the_base_version(state: str, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if state == "no program git":
        commit(clone)
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    elif state != "no commit yet":
        # Git would go on to the folder around it.
        git(tmp_path, "init", "-q")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "a change")
        shutil.rmtree(clone / ".git")
        (clone / ".git").mkdir() if "folder" in state else (clone / ".git").write_text("gitdir: /nowhere\n")
    assert version_in(clone) == "7.1.0.dev0"


def test_variables_of_a_hook_and_settings_of_the_user_change_nothing(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(clone)
    last = commit(clone)
    other = copy(tmp_path / "other")
    git(other, "init", "-q")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "log.showRoot")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "false")
    assert version_in(clone) == f"7.1.0.dev1+g{last}"


def refuse(*arguments: Any, **options: Any) -> Any:
    raise AssertionError(f"a process was started: {arguments}")


def test_a_deployed_app_reads_what_its_package_was_made_with_and_starts_no_process(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = commit(clone)
    shutil.copytree(clone / "shared", tmp_path / "deployed" / "shared")
    (tmp_path / "deployed" / "shared" / "core" / "version.txt").write_text(f"{version_in(clone)}\n")
    monkeypatch.setattr(subprocess, "run", refuse)
    assert version_in(tmp_path / "deployed") == f"7.1.0.dev0+g{last}"


def test_the_recorded_version_starts_no_process(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(clone)
    monkeypatch.setattr(subprocess, "run", refuse)
    assert load(clone).recorded_version() == "7.1.0.dev0"


def test_a_package_in_the_clone_of_another_project_does_not_take_its_commit(clone: Path) -> None:
    commit(clone)
    shutil.copytree(clone / "shared", clone / "tocsin")
    assert version_in(clone, "tocsin/core/version.py") == "7.1.0.dev0"


def test_this_repository_has_a_version_of_its_base() -> None:
    found = Version(version_in(ROOT))
    assert found.base_version == load(ROOT).BASE and found.is_devrelease
