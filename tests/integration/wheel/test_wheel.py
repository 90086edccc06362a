"""The wheel, built and installed into an empty environment: what applications and nodes get."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from packaging.metadata import Metadata, parse_email

from devhost.azurite import ROOT, Azurite
from shared.extras.emulator import Emulator, scenario_of
from tests import waiting
from tests.integration.maintenance.agents import Agent
from tests.integration.maintenance.agents import until as until_agent
from tests.integration.scheduler.conftest import Host
from tests.integration.scheduler.receiver import Receiver

RECEIVERS = ROOT / "docs" / "examples"
EXAMPLE = RECEIVERS / "cookbook"

KEPT = re.compile(r"(HOME|PATH)$|PIP_|SSL_|\w+_proxy$", re.IGNORECASE)
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path, cwd: Path) -> str:
    """Return the output of the command; it must succeed, and sees of this environment only what pip may need."""
    kept = {name: value for name, value in os.environ.items() if KEPT.match(name)}
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ".", cwd=ROOT)
    [built] = folder.glob("tocsin-*.whl")
    return built


def test_wheel_holds_the_package_under_its_name_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tocsin"}
    here = {path.relative_to(ROOT / "shared").as_posix() for path in (ROOT / "shared").rglob("*.py")}
    assert {name.removeprefix("tocsin/") for name in names if name.endswith(".py")} == here
    assert "tocsin/py.typed" in names
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("tocsin/requirements.txt") == (ROOT / "requirements-agent.txt").read_bytes()


# The modules that are loaded, without those of the standard library.
LOADED = """
import json, sys
before = set(sys.modules)
def loaded():
    return sorted(name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names)
import tocsin
bare = loaded()
from tocsin import verify
receiving = loaded()
from tocsin import Client
calling = loaded()
missing = [name for name in tocsin.__all__ if not hasattr(tocsin, name)]
from tocsin.checkpoints import CheckpointParticipant
from tocsin.leases import OwnerGuard, partition_of_key
from tocsin.maintenance.agent import service
from importlib.metadata import distributions
installed = sorted(each.name for each in distributions())
print(json.dumps([bare, receiving, calling, loaded(), missing, tocsin.__file__, installed]))
"""
MOST_MODULES = 150

# The calls of an application with the bare package.
USED = """
import base64, hmac, time
from datetime import timedelta
import httpx
import tocsin

key, body, now = b"k" * 32, b'{"n": 1}', str(int(time.time()))
signature = base64.b64encode(hmac.digest(key, b"e1." + now.encode() + b"." + body, "sha256")).decode()
headers = {"webhook-id": "e1", "webhook-timestamp": now, "webhook-signature": f"v1,{signature}", "ce-id": "e1"}
headers |= {"ce-source": "/tenants/t/channels/c", "ce-tocsindue": "2030-01-01T00:00:00Z", "ce-tocsinfired": "2030-01-01T00:00:00Z"}
headers |= {"ce-tocsinattempt": "1", "ce-tocsinlatems": "0"}
assert tocsin.verify(headers, body, "whsec_" + base64.b64encode(key).decode()).payload == {"n": 1}

problem = {"type": "x/not-found", "status": 404, "detail": "no such event"}
transport = httpx.MockTransport(lambda request: httpx.Response(404, json=problem))
with tocsin.Client("https://app.example", "a-demo-key", transport=transport) as client:
    try:
        client.cancel("order-17")
    except tocsin.NotFound as missing:
        assert "order-17" in str(missing)

from tocsin.checkpoints import CheckpointParticipant, Health, TurnLost
CheckpointParticipant("search", "s7", "https://app.example", "a-demo-key", health=Health, folder=".")
print("used")
"""

# The calls of a node with the extra `node`.
KEPT_LEASES = """
from tocsin.leases import FencedBatch, HttpTables, LeaseKeeper
tables = HttpTables.from_connection_string("UseDevelopmentStorage=true")
keeper = LeaseKeeper("search", "s7", tables, tenant="demo", folder=".")
tables.close()
print("kept")
"""

# The errors that name a missing package and its extra.
WITHOUT_EXTRAS = """
def asked(action):
    try:
        action()
    except ImportError as missing:
        return str(missing)

def keeper():
    from tocsin.leases import LeaseKeeper

def testing():
    import tocsin.testing

assert asked(keeper).startswith("tocsin.leases.LeaseKeeper needs orjson: install the wheel with its extra `node`"), asked(keeper)
assert 'pip install "$(ls dist/tocsin-*.whl)[testing]"' in asked(testing), asked(testing)
print("asked")
"""


def oldest() -> str | None:
    """The Python 3.12 on PATH or among pyenv's versions, None where there is none that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for candidate in ["python3.12", *map(str, sorted(pyenv.glob("3.12*/bin/python3.12"), reverse=True))]:
        look = "import sys, venv; assert sys.version_info[:2] == (3, 12); print(sys.executable)"
        with contextlib.suppress(OSError):
            found = subprocess.run([candidate, "-c", look], capture_output=True, text=True)
            if found.returncode == 0:
                return found.stdout.strip()
    return None


# An event from the client to its delivery.
SENT = """
import os, time
import tocsin
with tocsin.Client(os.environ["TOCSIN_URL"], os.environ["TOCSIN_KEY"]) as client:
    event = client.schedule({"n": 1}, delay="PT0.5S")
    end = time.monotonic() + 180
    while client.get(event.id).state != "delivered" and time.monotonic() < end:
        time.sleep(0.2)
    print(client.get(event.id).state)
"""


def environment(which: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a new, empty virtual environment."""
    interpreter = sys.executable if which == "this Python" else oldest()
    if interpreter is None:
        pytest.skip("no Python 3.12 on PATH or among pyenv's versions: what users install was not run on it")
    folder = tmp_path_factory.mktemp("venv")
    run(interpreter, "-m", "venv", "--without-pip", folder, cwd=folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module", params=["this Python", "Python 3.12"])
def bare(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the package without extras."""
    python = environment(request.param, tmp_path_factory)
    install(python, wheel)
    return python


@pytest.fixture(scope="module", params=["this Python", "Python 3.12"])
def python(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter for the command and for nodes: on this Python as users install it, on 3.12 as the agent's installer does."""
    python = environment(request.param, tmp_path_factory)
    if request.param == "this Python":
        install(python, f"{wheel}[cli,node]")
    else:
        install(python, "--require-hashes", "--only-binary", ":all:", "-r", ROOT / "requirements-agent.txt")
        install(python, "--no-deps", "--no-index", wheel)
    return python


def install(python: Path, *what: str | Path) -> None:
    # Compiling thousands of modules of which dozens are imported would take half the time.
    run(*PIP, "--python", python, "install", "--no-compile", *what, cwd=python.parent)


def test_bare_package_needs_httpx_alone_and_loads_little(bare: Path, tmp_path: Path) -> None:
    alone, receiving, calling, everything, missing, home, installed = json.loads(run(bare, "-c", LOADED, cwd=tmp_path))
    assert missing == [] and str(bare.parents[1]) in home
    assert alone == ["tocsin"]
    assert {name.partition(".")[0] for name in receiving} == {"tocsin"}
    assert "httpx" in calling and len(calling) <= MOST_MODULES, calling
    assert {"tocsin.checkpoints.node.participant", "tocsin.leases.node.receiving", "tocsin.maintenance.agent.service"} <= set(everything)
    # httpx and what it requires. typing-extensions: of anyio, on 3.12.
    assert set(installed) - {"typing_extensions"} == {"anyio", "certifi", "h11", "httpcore", "httpx", "idna", "tocsin"}


def test_bare_package_serves_clients_and_receivers(bare: Path, tmp_path: Path) -> None:
    assert run(bare, "-W", "error", "-c", USED, cwd=tmp_path) == "used\n"


def test_bare_package_says_which_extra_is_missing(bare: Path, tmp_path: Path) -> None:
    assert run(bare, "-W", "error", "-c", WITHOUT_EXTRAS, cwd=tmp_path) == "asked\n"
    done = subprocess.run([bare.parent / "tocsin", "status"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("tocsin: the command needs typer: install the wheel with its extra `cli`: pip install ")


def test_nodes_keep_leases_with_their_extra(python: Path, tmp_path: Path) -> None:
    assert run(python, "-W", "error", "-c", KEPT_LEASES, cwd=tmp_path) == "kept\n"


def test_command_comes_with_its_extra(python: Path, wheel: Path, tmp_path: Path) -> None:
    tocsin = python.parent / "tocsin"
    assert run(tocsin, "--version", cwd=tmp_path) == f"tocsin {wheel.name.split('-')[1]}\n"
    assert "--fleet" in run(tocsin, "checkpoint", "run", "--help", cwd=tmp_path)
    # It reads rows of the app, and the app's libraries are not here.
    assert run(tocsin, "verify-trace", ROOT / "tests" / "data" / "traces" / "legal.log", cwd=tmp_path).startswith("legal: ")


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the list into which the lines of the process go as they come."""
    printed: list[str] = []
    assert process.stdout is not None
    threading.Thread(target=lambda: printed.extend(line.strip() for line in process.stdout or ()), daemon=True).start()
    return printed


def until(look: Callable[[], object], what: str) -> None:
    waiting.wait_until(look, what)


def test_example_server_joins_a_fleet_shares_it_and_hands_it_over(python: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "examples" / "leases" / "server.py").read_text()
    assert len([line for line in text.splitlines() if line]) <= 15
    assert text in (ROOT / "docs" / "how-to" / "serve-partitions.md").read_text()
    (tmp_path / "server.py").write_text(text)
    with Azurite(memory=True) as azurite, contextlib.ExitStack() as stack:
        receiver = Receiver().start()
        stack.callback(receiver.stop)
        host = Host(tmp_path, azurite.connection_string, receiver).start()
        stack.callback(host.end)
        fleet = {"partitions": 4, "profile": {"beat": "PT1S", "validity": "PT10S", "takeover": "PT12S"}}
        answer = httpx.put(f"{host.url}/api/v1/fleets/search", json=fleet, headers={"Authorization": "Bearer local-demo-key"}, timeout=180)
        assert answer.status_code == 201, answer.text

        def start(name: str) -> tuple[subprocess.Popen[str], list[str]]:
            environment = {"TABLES": azurite.connection_string, "PYTHONUNBUFFERED": "1"}
            command = [python, "-W", "error", "server.py", name]
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process, lines_of(process)

        a, lines_of_a = start("a")
        until(lambda: {f"serving {number}" for number in range(4)} <= set(lines_of_a), "everything")
        b, lines_of_b = start("b")
        until(lambda: len({line for line in lines_of_b if line.startswith("serving")}) == 2, "half of it")
        assert len({line for line in lines_of_a if line.startswith("lost")}) == 2
        a.terminate()
        assert waiting.ended(a, "server a") == 0
        until(lambda: {f"serving {number}" for number in range(4)} <= set(lines_of_b), "everything handed over")
        b.terminate()
        assert waiting.ended(b, "server b") == 0
        sent = {"TOCSIN_URL": host.url, "TOCSIN_KEY": "local-demo-key"}
        sent_event = waiting.run([python, "-W", "error", "-c", SENT], cwd=tmp_path, env=sent)
        assert sent_event.stdout == "delivered\n", sent_event.stdout + sent_event.stderr
        assert {line.split()[2] for line in lines_of_a + lines_of_b if line.startswith("lost")} == {"handed-off"}


async def test_agent_prepares_the_node_and_puts_it_back(python: Path, tmp_path: Path) -> None:
    scenario = {"vms": [{"name": "n1"}], "imds": {"rate": 1000}}
    async with Emulator(scenario_of(scenario)) as imds:
        agent = Agent(tmp_path / "n1", imds.url("n1"), module="tocsin.cli", python=python)
        try:
            agent.start()
            await until_agent(lambda: agent.said("agent_started"), "it begins", [agent])
            event = {"name": "update", "vms": ["n1"], "type": "Freeze", "duration": 9, "notice": "PT20M", "settles": "PT1H"}
            imds.do({"event": event})
            await imds.until(lambda world: imds.event("update").started_at is not None)
            imds.do({"complete": "update"})
            await until_agent(lambda: agent.did() == ["prepare", "restore", "verify"], "the node is back", [agent])
            assert agent.end() == 0
        finally:
            agent.close()


@pytest.mark.parametrize("which", ["this Python", "Python 3.12"])
def test_extra_for_tests_runs_the_examples_with_plain_pytest(
    which: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    pins = re.findall(r"^pytest==.*$", (ROOT / "requirements-dev.in").read_text(), re.MULTILINE)
    python = environment(which, tmp_path_factory)
    install(python, f"{wheel}[testing]", *pins)
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__", "typescript"))
    printed = run(python, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", ".", cwd=tmp_path / "example")
    assert "12 passed" in printed


def test_extras_and_the_apps_requirements_name_the_same_libraries() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line for lines in (project["dependencies"], *project["optional-dependencies"].values()) for line in lines}
    ranges = dict(re.fullmatch(r"([a-z-]+)(>=\S*)( ; .*)?", line).groups()[:2] for line in named if "[" not in line)  # type: ignore[union-attr]
    pins = dict(re.findall(r"^([a-z-]+)==(\S+)$", (ROOT / "requirements.in").read_text(), re.MULTILINE))
    # The worker is the platform's, not the code's; the client, the command and what nodes run are not the app's.
    assert pins.keys() - ranges.keys() == {"azure-functions-runtime"}
    assert ranges.keys() - pins.keys() == {"httpx", "mcp", "pyyaml", "rich", "typer"}
    for name, version in pins.items():
        if name in ranges:
            least, _, below = ranges[name].removeprefix(">=").partition(",<")
            assert numbers(least) <= numbers(version) and (not below or numbers(version) < numbers(below)), name


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


@pytest.mark.parametrize("example", ["receiver_fastapi", "receiver_functions"])
def test_requirements_of_a_receiver_name_the_wheel_that_is_built_and_the_pins_that_are_tested(
    wheel: Path, example: str, tmp_path: Path
) -> None:
    shutil.copytree(RECEIVERS / example, tmp_path / "docs" / "examples" / example)
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    page = (RECEIVERS / example / "README.md").read_text()
    for command in re.findall(r"^    (.*dist/?\b.*docs/examples/.*)$", page, re.MULTILINE)[:2]:
        run("sh", "-c", command, cwd=tmp_path)
    folder = tmp_path / "docs" / "examples" / example
    assert (folder / "wheel.txt").read_text() == f"./{wheel.name}\n" and (folder / wheel.name).is_file()
    lines = (folder / "requirements.txt").read_text().splitlines()
    tested = "".join(file.read_text() for file in sorted(ROOT.glob("requirements*.in")))
    given = [line for line in lines if not line.startswith("#")]
    assert [line for line in given if line not in tested.splitlines()] == ["-r wheel.txt"]


def test_metadata_names_the_project_and_no_link_of_the_description_is_relative(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata, unread = parse_email(archive.read(name))
    assert unread == {}
    Metadata.from_raw(metadata, validate=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    repository = project["tool"]["tocsin"]["repository"]
    assert metadata["author"] == "The Tocsin authors"
    assert metadata["license_expression"] == "MIT" and metadata["license_files"] == ["LICENSE"]
    assert metadata["keywords"] and "Typing :: Typed" in metadata["classifiers"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= metadata["project_urls"].keys()
    assert all(url.startswith(repository) for url in metadata["project_urls"].values())
    files = {path.removeprefix(f"{repository}/blob/main/") for path in metadata["project_urls"].values() if "/blob/" in path}
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert metadata["description_content_type"] == "text/markdown"
    targets = re.findall(r"\]\(([^)\s]+)\)", metadata["description"])
    assert len(targets) > 20 and [each for each in targets if not each.startswith(("https://", "http://", "#"))] == []
    local = [each.removeprefix(repository).split("/", 3)[3].partition("#")[0] for each in targets if each.startswith(repository)]
    assert [each for each in local if not (ROOT / each).exists()] == []
