"""The agent obeys only files that root and its own user can change: settings, key, hooks, state, and the folders above them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from shared.maintenance.agent.config.checking import list_doubts
from shared.maintenance.agent.config.config import BadConfig, load
from shared.maintenance.agent.config.file_trust import find_untrusted
from shared.maintenance.agent.service import Agent, CannotStart, Replaced
from tests.texts import assert_text

APP = '[app]\nurl = "https://app.example"\nfleet = "search"\nkey_file = "key"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The settings in `etc`, a hook in `bin`, a state folder, a key: all of them right."""
    for name in ("etc", "bin", "state"):
        (tmp_path / name).mkdir(mode=0o755)
    hook = tmp_path / "bin" / "leave"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    (tmp_path / "bin" / "ours.py").write_text("def leave(event): ...\n")
    (tmp_path / "bin" / "helper.py").write_text("")
    (tmp_path / "bin" / "plain.sh").write_text("true\n")
    (tmp_path / "bin" / "__pycache__").mkdir(mode=0o755)
    (tmp_path / "etc" / "key").write_text("an-agents-own-key")
    (tmp_path / "etc" / "key").chmod(0o600)
    for path in tmp_path.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o022)
    return tmp_path


def write(folder: Path, hook: str = "", more: str = "") -> Path:
    path = folder / "etc" / "agent.toml"
    hook = hook or f'command = ["{folder}/bin/leave"]'
    path.write_text(f'state = "{folder}/state"\n{more}[hooks.prepare]\n{hook}\n[hooks.restore]\ncommand = ["true"]\n')
    path.chmod(0o644)
    return path


def faults(path: Path) -> list[str]:
    try:
        load(path, {})
    except BadConfig as bad:
        return bad.faults
    return []


@pytest.mark.parametrize("name", ["etc/agent.toml", "etc", "bin/leave", "bin", "state", "."])
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_group_or_others_can_write_is_refused_with_the_command_that_mends_it(folder: Path, name: str, mode: int) -> None:
    path = write(folder)
    assert faults(path) == []
    wrong = folder / name
    wrong.chmod(wrong.stat().st_mode & 0o777 | mode)
    found = faults(path)
    assert found and all(fault.endswith(f"; run: chmod go-w {wrong}") for fault in found)
    os.system(found[0].rpartition("run: ")[2])
    assert faults(path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["etc/agent.toml", "etc", "bin/leave", "bin", "state", "."])
def test_what_another_user_owns_is_refused(folder: Path, name: str) -> None:
    path = write(folder)
    os.chown(folder / name, pwd.getpwnam("nobody").pw_uid, -1)
    found = faults(path)
    assert found and all("belongs to nobody" in fault and fault.endswith(f"; run: chown root {folder / name}") for fault in found)


def test_what_root_owns_is_accepted_from_another_user_too_and_what_others_own_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert find_untrusted(Path("/usr/bin/env")) == ""
    assert "belongs to" in find_untrusted(folder)


def test_a_sticky_folder_is_accepted_above_but_not_as_the_state_folder(folder: Path) -> None:
    path = write(folder)
    folder.chmod(0o1777)
    assert faults(path) == []
    (folder / "state").chmod(0o1777)
    assert_text("agent.file-open-to-others", faults(path), setting="state", path=f"{folder}/state", mode="1777")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666, 0o644])
def test_a_key_that_group_or_others_can_read_is_refused(folder: Path, mode: int) -> None:
    path, key = write(folder, more=""), folder / "etc" / "key"
    path.write_text(APP)
    key.chmod(mode)
    [fault] = faults(path)
    assert fault.startswith("app.key_file: ") and fault.endswith(f"; run: chmod 600 {key}") and f"{mode:04o}" in fault
    key.chmod(0o400)
    assert faults(path) == []


def test_links_are_followed_and_the_folders_that_hold_them_count(folder: Path) -> None:
    shared = folder / "shared"
    shared.mkdir()
    (shared / "leave").symlink_to("../bin/leave")
    (folder / "link").symlink_to(shared)
    path = write(folder, f'command = ["{folder}/link/leave"]')
    assert faults(path) == []
    shared.chmod(0o777)
    assert [fault.partition(":")[0] for fault in faults(path)] == ["hooks.prepare"]
    shared.chmod(0o755)
    (folder / "bin" / "leave").chmod(0o775)
    assert [fault.partition(":")[0] for fault in faults(path)] == ["hooks.prepare"]


def test_a_circle_of_links_ends(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    assert find_untrusted(folder / "a") == ""


@pytest.mark.parametrize(
    ("hook", "wrong"),
    [
        ('command = ["sh", "{0}/bin/leave"]', "bin/leave"),
        ('command = ["python3", "-P", "{0}/bin/ours.py", "now"]', "bin/ours.py"),
        ('command = ["timeout", "5", "{0}/bin/leave"]', "bin/leave"),
        ('command = ["sh", "-e", "{0}/bin/plain.sh"]', "bin/plain.sh"),
        ('command = ["bash", "-xe", "-o", "pipefail", "{0}/bin/plain.sh"]', "bin/plain.sh"),
        ('command = ["/usr/bin/env", "MODE=fast", "bash", "{0}/bin/plain.sh"]', "bin/plain.sh"),
        ('command = ["timeout", "5", "sh", "{0}/bin/plain.sh"]', "bin/plain.sh"),
        ('command = ["python3", "-W", "ignore", "{0}/bin/ours.py"]', "bin/ours.py"),
        ('command = ["sh", "-c", ". {0}/bin/plain.sh; true"]', "bin/plain.sh"),
        ('command = ["sh", "-ec", "{0}/bin/leave --now && true"]', "bin/leave"),
        ('command = ["sh", "-c", "nice sh {0}/bin/plain.sh >/dev/null"]', "bin/plain.sh"),
        ('command = ["nice", "leave"]\nenvironment = {{PATH = "{0}/bin:/usr/bin"}}', "bin/leave"),
        ('command = ["true"]\nenvironment = {{PYTHONPATH = "/usr/lib:{0}/bin"}}', "bin"),
        ('command = ["true"]\nenvironment = {{BASH_ENV = "{0}/bin/plain.sh"}}', "bin/plain.sh"),
        ('call = "ours:leave"\npath = "{0}/bin"', "bin/ours.py"),
        ('call = "ours:leave"\npath = "{0}/bin"', "bin/helper.py"),
        ('call = "ours:leave"\npath = "{0}/bin"', "bin/__pycache__"),
        ('call = "ours:leave"\npath = "../bin"', "bin"),
        ('command = ["leave"]\nenvironment = {{PATH = "{0}/bin:/usr/bin"}}', "bin/leave"),
    ],
)
def test_scripts_modules_and_programs_on_path_are_checked(folder: Path, hook: str, wrong: str) -> None:
    path = write(folder, hook.format(folder))
    assert faults(path) == []
    (folder / wrong).chmod(0o777)
    [fault] = faults(path)
    assert fault.startswith("hooks.prepare: ") and f"can write to {folder}" in fault


@pytest.mark.parametrize(
    "hook",
    [
        'command = ["{0}/leave"]',
        'command = ["{0}/not/there/leave"]',
        'command = ["{0}/link"]',
        'command = ["sh", "-e", "{0}/leave"]',
        'command = ["timeout", "5", "{0}/leave", "now"]',
        'command = ["flock", "{0}/lock", "{0}/leave"]',
        'command = ["nice", "-n", "5", "timeout", "9", "bash", "-e", "{0}/leave"]',
        'command = ["/usr/bin/env", "A=b", "{0}/leave", "now"]',
        'command = ["sh", "-c", "true && {0}/leave"]',
        'command = ["sh", "-c", ". {0}/leave"]',
        'command = ["python3", "{0}"]',
        'command = ["true"]\nenvironment = {{PYTHONPATH = "{0}/leave"}}',
        'call = "ours:leave"\npath = "{0}/not/there"',
    ],
)
def test_what_anyone_could_create_in_a_sticky_folder_is_refused(folder: Path, hook: str) -> None:
    sticky = folder / "sticky"
    sticky.mkdir()
    (sticky / "link").symlink_to("leave")
    path = write(folder, hook.format(sticky))
    assert faults(path) == []
    sticky.chmod(0o1777)
    [fault] = faults(path)
    assert fault.startswith("hooks.prepare: ") and str(sticky) in fault


def test_a_state_folder_that_is_not_there_yet_is_created_in_a_sticky_folder(folder: Path) -> None:
    folder.chmod(0o1777)
    path = write(folder)
    path.write_text(path.read_text().replace("/state", "/new/state"))
    assert faults(path) == []
    folder.chmod(0o777)
    assert [fault.partition(":")[0] for fault in faults(path) if fault.startswith("state")] == ["state"]
    folder.chmod(0o755)
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o777)
    (folder / "shared" / "sticky").mkdir()
    (folder / "shared" / "sticky").chmod(0o1777)
    path.write_text(path.read_text().replace(f"{folder}/new/state", f"{folder}/shared/sticky/state"))
    [fault] = faults(path)
    assert fault.startswith("state: ") and f"{folder}/shared (mode 0777)" in fault


def test_data_that_a_hook_is_given_may_belong_to_others(folder: Path) -> None:
    data = folder / "data"
    data.write_text("")
    data.chmod(0o666)
    assert faults(write(folder, f'command = ["sh", "-c", "cat $1", "x", "{data}"]')) == []
    assert faults(write(folder, f'command = ["tee", "{data}"]')) == []
    assert faults(write(folder, f'command = ["timeout", "5", "tee", "{data}"]')) == []
    (folder / "bin").chmod(0o755)
    folder.chmod(0o1777)
    for command in (
        f'["{folder}/bin/leave", "{folder}/new.log"]',
        f'["timeout", "5", "{folder}/bin/leave", "{folder}/new.log"]',
        f'["timeout", "5", "tee", "{folder}/new.log"]',
        f'["flock", "{folder}/lock", "{folder}/bin/leave"]',
        f'["flock", "{folder}/lock", "nice", "tee", "{folder}/new.log"]',
        f'["sh", "-c", "test -e {folder}/mark && touch {folder}/new"]',
        f'["sh", "{folder}/bin/plain.sh", "{folder}/new.log"]',
    ):
        assert faults(write(folder, f"command = {command}")) == [], command
    assert faults(write(folder, f'command = ["sh", "-c", "cat {data} | wc -l"]')) == []
    assert faults(write(folder, f'command = ["sh", "-c", "echo \\"{data}"]')) == [], "code that cannot be split"


@pytest.mark.parametrize("name", ["state.json", "cassandra.json", "disabled", "reports.jsonl", "state.json.new", "hooks", "hooks/17.run"])
def test_what_the_agent_reads_in_its_state_folder_is_checked(folder: Path, name: str) -> None:
    path, wrong = write(folder), folder / "state" / name
    (folder / "state" / "hooks").mkdir(mode=0o755)
    if name != "hooks":
        wrong.write_text("")
    wrong.chmod(0o755)
    assert faults(path) == []
    wrong.chmod(0o777)
    assert_text("agent.file-open-to-others", faults(path), setting="state", path=wrong, mode="0777")
    (folder / "state").chmod(0o700)
    assert faults(path) == [], "nobody else can reach it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_state_file_of_another_user_is_refused_also_in_a_private_folder(folder: Path) -> None:
    path, wrong = write(folder), folder / "state" / "state.json"
    wrong.write_text("")
    (folder / "state").chmod(0o700)
    os.chown(wrong, pwd.getpwnam("nobody").pw_uid, -1)
    [fault] = faults(path)
    assert "belongs to nobody" in fault and fault.endswith(f"; run: chown root {wrong}")


def test_the_program_of_a_recipe_is_checked(folder: Path) -> None:
    path = folder / "etc" / "agent.toml"
    path.write_text(f'state = "{folder}/state"\n[recipe]\nname = "cassandra"\nnodetool = "{folder}/bin/leave"\n')
    assert faults(path) == []
    (folder / "bin" / "leave").chmod(0o777)
    [fault] = faults(path)
    assert fault.startswith("recipe.name: ") and f"{folder}/bin/leave" in fault


def test_a_folder_of_path_before_the_program_that_others_can_write_to_is_a_doubt(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    config = load(write(folder, f'command = ["leave"]\nenvironment = {{PATH = "{folder}/open:{folder}/bin"}}'), {})
    assert any(f"other users can write to {folder}/open" in doubt for doubt in list_doubts(config))


def test_a_state_folder_that_was_opened_since_the_file_was_read_is_refused(folder: Path) -> None:
    config = load(write(folder, more="[health]\nenabled = false\n"), {})
    (folder / "state").chmod(0o777)
    with pytest.raises(CannotStart, match="chmod go-w"):
        Agent(config, once=True, replaced=Replaced(boot_id="boot-1")).run()


def test_a_new_state_folder_passes_whatever_the_umask(folder: Path) -> None:
    path = folder / "etc" / "agent.toml"
    path.write_text(f'state = "{folder}/new/state"\n[imds]\nurl = "http://127.0.0.1:9"\n[health]\nenabled = false\n')
    before = os.umask(0)
    try:
        Agent(load(path, {}), once=True, replaced=Replaced(boot_id="boot-1")).run()
    finally:
        os.umask(before)
    assert (folder / "new" / "state" / "lock").stat().st_mode & 0o077 == 0
    assert faults(path) == []
