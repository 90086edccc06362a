"""Files beside the Bicep files: the agent's installer and settings, cloud-init, azd's file, the way to the real compiler."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from shared.core.version import BASE
from shared.maintenance.agent.config.config import load
from shared.maintenance.agent.config.file_trust import find_untrusted
from tests.paths import ROOT

from .snapshots import FIRST, FOLDER, KEYS, deployed, parameters

PINS = "httpx==0.28.1 --hash=sha256:0000"


def wheel() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("tocsin/requirements.txt"), PINS)
    return file.getvalue()


WHEEL = wheel()
KEY = "node-key-0123456789"
VALUES = {
    "WHEEL_URL": "https://acct.blob.core.windows.net/wheels/tocsin-0.1.0-py3-none-any.whl",
    "WHEEL_SHA256": hashlib.sha256(WHEEL).hexdigest(),
    "VAULT_URL": "https://v.vault.azure.net",
    "SECRET_PREFIX": "agent-",
    "CONFIG": base64.b64encode(b"# settings\n").decode(),
}

# Stand-ins: each notes what it was called with, after a line that says who it is.
CURL = """
out=; url=
for arg; do case $last in -o) out=$arg ;; esac; last=$arg; url=$arg; done
case $url in
  *instance/compute/name*) printf "${VM:-vm1}" ;;
  *oauth2/token*) printf '{"access_token": "TOKEN-%s"}' "${url##*resource=}" ;;
  *.whl) config=$(cat); case $config in *TOKEN-https://storage.azure.com/*) cat "$WHEEL" >"$out" ;; *) exit 22 ;; esac ;;
  */secrets/agent-vm1*) config=$(cat)
    tries=$(cat "$LOG" | grep -c '^curl.*secrets') ; [ "$tries" -ge "${ROLE_AFTER:-1}" ] || exit 22
    case $config in *TOKEN-https://vault.azure.net*) printf '{"value": "%s"}' "$NODE_KEY" >"$out" ;; *) exit 22 ;; esac ;;
  *) exit 22 ;;
esac
"""
PYTHON = """
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; cp "$0" "$3/bin/tocsin"
elif [ "$1" = -c ]; then
  exec "$REAL_PYTHON" "$@"
elif [ "$1 $2" = "-m pip" ]; then
  for arg; do case $arg in */requirements.txt) cat "$arg" >"$LOG.pins" ;; esac; done
elif [ "$1" = agent ]; then
  case "$*" in *--check) [ -z "${WRONG:-}" ] || exit 2; cat "$(dirname "$3")/agent.key" >"$LOG.checked" ;; esac
  case "$*" in *--unit) echo "[Unit] $0" ;; esac
fi
"""
DIES = """
[ "$(wc -l <"$LOG")" -lt "${DIES_AT:-9999}" ] || kill -9 0
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with stand-ins for what the installer calls."""
    tools = tmp_path / "bin"
    tools.mkdir()
    real = {name: f'exec {shutil.which(name)} "$@"' for name in ("mv", "ln", "mkdir", "chmod", "rm", "sha256sum")}
    for name, body in ({"curl": CURL, "python3.12": PYTHON, "systemctl": "", "sleep": ""} | real).items():
        (tools / name).write_text(f'#!/bin/sh\nprintf "%s %s\\n" {name} "$*" >>"$LOG"\n{DIES}{body}')
        (tools / name).chmod(0o755)
    (tmp_path / "wheel").write_bytes(WHEEL)
    return tmp_path


def install(machine: Path, sources: Mapping[str, str], path: str = "", **change: str) -> subprocess.CompletedProcess[str]:
    """Run the installer with the placeholders filled in, into a folder; `path` runs one that lies there."""
    text = sources["agent/install.sh"]
    for name, value in (VALUES | {key: value for key, value in change.items() if key in VALUES}).items():
        text = text.replace(f"@{name}@", value)
    script = Path(path) if path else machine / "install.sh"
    if not path:
        script.write_text(text)
    environment = {
        "PATH": f"{machine / 'bin'}:{os.environ['PATH']}",
        "LOG": str(machine / "log"),
        "WHEEL": str(machine / "wheel"),
        "TOCSIN_ROOT": str(machine / "root"),
        "TOCSIN_TRIES": "3",
        "REAL_PYTHON": sys.executable,
        "NODE_KEY": KEY,
        "TMPDIR": str(machine),
    }
    change = {key: value for key, value in change.items() if key not in VALUES}
    command, environment = ["sh", str(script)], environment | change
    # In a group of its own, because a stand-in may kill all of it.
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False, start_new_session=True)


def test_the_installer_fetches_wheel_and_key_as_the_machine_and_starts_the_agent(machine: Path, sources: Mapping[str, str]) -> None:
    done = install(machine, sources)
    assert done.returncode == 0, done.stderr
    etc = machine / "root" / "etc"
    assert (etc / "tocsin" / "agent.key").read_text() == KEY
    assert stat.S_IMODE((etc / "tocsin" / "agent.key").stat().st_mode) == 0o600
    assert (etc / "tocsin" / "agent.toml").read_text() == "# settings\n"
    assert [find_untrusted(etc / "tocsin" / name) for name in ("agent.toml", "agent.key")] == ["", ""]
    assert program_of(machine) == (machine / "root" / "opt" / "tocsin" / "venv").resolve() / "bin" / "tocsin"
    log = (machine / "log").read_text()
    assert re.findall(r"^systemctl (.*)$", log, re.MULTILINE) == ["daemon-reload", "enable --quiet tocsin-agent", "restart tocsin-agent"]
    assert log.index("--check") < log.index("--unit") < log.index("systemctl")
    output = log + done.stdout + done.stderr
    assert KEY not in output and "TOKEN-" not in output


def program_of(machine: Path) -> Path:
    """Return the program that systemd starts: the unit names it."""
    first, program = (machine / "root" / "etc" / "systemd" / "system" / "tocsin-agent.service").read_text().split()
    assert first == "[Unit]"
    return Path(program)


def test_an_installer_that_is_killed_at_any_step_leaves_a_whole_agent_and_the_next_one_leaves_nothing_else(
    machine: Path, sources: Mapping[str, str]
) -> None:
    assert install(machine, sources).returncode == 0
    steps = len((machine / "log").read_text().splitlines())
    home, etc = machine / "root" / "opt" / "tocsin", machine / "root" / "etc" / "tocsin"
    killed = 0
    for step in range(1, 2 * steps):
        (machine / "log").write_text("")
        done = install(machine, sources, DIES_AT=str(step), NODE_KEY=f"node-key-{step}", CONFIG=base64.b64encode(b"# other\n").decode())
        killed += done.returncode < 0
        program = program_of(machine)
        assert program.read_text() == (program.parent / "python").read_text(), f"killed at step {step}: the agent is not whole"
        assert (home / "venv" / "bin" / "tocsin").is_file()
        assert (etc / "agent.key").read_text().startswith("node-key-") and (etc / "agent.toml").read_text() in ("# settings\n", "# other\n")
        if done.returncode == 0:
            break
    assert killed > 20, "each step was tried"
    assert [path.name for path in home.glob("venv-*")] == [program_of(machine).parents[1].name]


def test_an_installer_that_fails_leaves_nothing_of_the_agent_that_it_was_making(machine: Path, sources: Mapping[str, str]) -> None:
    assert install(machine, sources).returncode == 0
    for _ in range(3):
        assert install(machine, sources, WRONG="1").returncode == 1
    assert [path.name for path in (machine / "root" / "opt" / "tocsin").glob("venv-*")] == [program_of(machine).parents[1].name]
    assert program_of(machine).is_file()


def test_installers_that_come_together_leave_a_whole_agent(machine: Path, sources: Mapping[str, str]) -> None:
    assert install(machine, sources).returncode == 0
    script = str(machine / "install.sh")
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda number: install(machine, sources, script, NODE_KEY=f"node-key-{number}"), range(4)))
    assert [each.returncode for each in done] == [0] * 4, [each.stderr for each in done]
    assert program_of(machine).is_file()
    assert [path.name for path in (machine / "root" / "opt" / "tocsin").glob("venv-*")] == [program_of(machine).parents[1].name]


def test_the_installer_replaces_an_agent_whose_virtual_environment_is_a_folder(machine: Path, sources: Mapping[str, str]) -> None:
    home = machine / "root" / "opt" / "tocsin"
    (home / "venv" / "bin").mkdir(parents=True)
    done = install(machine, sources)
    assert done.returncode == 0, done.stderr
    assert program_of(machine) == (home / "venv").resolve() / "bin" / "tocsin"
    assert [path.name for path in home.glob("venv-*")] == [program_of(machine).parents[1].name]


def test_a_machine_with_an_underscore_in_its_name_reads_a_secret_whose_name_may_exist(machine: Path, sources: Mapping[str, str]) -> None:
    assert install(machine, sources, VM="vm1_0.a").returncode == 0
    assert "https://v.vault.azure.net/secrets/agent-vm1--u0--da?" in (machine / "log").read_text()


def test_each_machine_has_a_secret_of_its_own(sources: Mapping[str, str]) -> None:
    """Machines with one secret could report for each other. The template's name and the installer's are the same, for each name."""
    names = ["".join(each) for length in range(1, 6) for each in itertools.product("a-_.uhd", repeat=length)]
    ((*_, command),) = re.findall(
        r"secret=(\$SECRET_PREFIX)\$\(printf %s \"\$vm\" \| (sed .*)\)$", sources["agent/install.sh"], re.MULTILINE
    )
    done = subprocess.run(["sh", "-c", command], input="\n".join(names), capture_output=True, text=True, check=True)
    read = done.stdout.splitlines()
    assert len(set(read)) == len(names) and all(re.fullmatch("[a-z-]+", each) for each in read)
    ((inner, steps),) = re.findall(
        r"secretName: '\$\{keyPrefix\}\$\{((?:replace\()+name)((?:, '[^']*', '[^']*'\))+)\}'", sources["agent/agent.bicep"]
    )
    pairs = re.findall(r", '([^']*)', '([^']*)'\)", steps)
    assert inner.count("replace(") == len(pairs)
    assert [functools.reduce(lambda name, pair: name.replace(*pair), pairs, each) for each in names] == read


def test_the_installer_takes_what_the_wheel_pins_with_its_hashes_and_builds_and_fetches_nothing_else(
    machine: Path, sources: Mapping[str, str]
) -> None:
    assert install(machine, sources).returncode == 0
    libraries, agent = re.findall(r"^python3.12 (-m pip .*)$", (machine / "log").read_text(), re.MULTILINE)
    assert {"--require-hashes", "--only-binary", ":all:", "-r"} <= set(libraries.split()) and (machine / "log.pins").read_text() == PINS
    # The libraries are there already. A wheel whose version is that of the former one is taken too.
    assert {"--no-deps", "--no-index", "--force-reinstall"} <= set(agent.split()) and agent.endswith("/tocsin-0.1.0-py3-none-any.whl")


def test_the_installer_checks_new_settings_and_keys_before_they_take_the_place_of_those_in_use(
    machine: Path, sources: Mapping[str, str]
) -> None:
    assert install(machine, sources).returncode == 0
    etc = machine / "root" / "etc" / "tocsin"
    assert (machine / "log.checked").read_text() == KEY, "the new key is checked, too"
    (machine / "log").write_text("")
    settings = base64.b64encode(b"lead_secnds = 3\n").decode()
    done = install(machine, sources, CONFIG=settings, NODE_KEY="another", WRONG="1")
    assert done.returncode == 1 and f"nothing in {etc} is changed" in done.stderr
    assert ((etc / "agent.toml").read_text(), (etc / "agent.key").read_text()) == ("# settings\n", KEY)
    assert sorted(path.name for path in etc.iterdir()) == ["agent.key", "agent.toml"]
    assert "systemctl" not in (machine / "log").read_text()


def test_the_installer_closes_a_folder_and_a_file_that_others_could_change(machine: Path, sources: Mapping[str, str]) -> None:
    etc = machine / "root" / "etc" / "tocsin"
    etc.mkdir(parents=True)
    (etc / "agent.toml").touch()
    for path, mode in ((etc, 0o777), (etc / "agent.toml", 0o666)):
        path.chmod(mode)
    assert find_untrusted(etc / "agent.toml")
    assert install(machine, sources).returncode == 0
    assert [find_untrusted(etc / name) for name in ("agent.toml", "agent.key")] == ["", ""]


def test_the_installer_stays_for_the_next_key_whether_it_came_by_extension_or_was_there(machine: Path, sources: Mapping[str, str]) -> None:
    assert install(machine, sources).returncode == 0
    kept = machine / "root" / "opt" / "tocsin" / "install.sh"
    assert kept.read_text() == (machine / "install.sh").read_text() and stat.S_IMODE(kept.stat().st_mode) == 0o700
    again = install(machine, sources, path=str(kept), NODE_KEY="node-key-of-tomorrow")
    assert again.returncode == 0, again.stderr
    assert (machine / "root" / "etc" / "tocsin" / "agent.key").read_text() == "node-key-of-tomorrow"


def test_the_installer_waits_for_a_role_that_is_not_known_yet(machine: Path, sources: Mapping[str, str]) -> None:
    assert install(machine, sources, ROLE_AFTER="3").returncode == 0
    assert (machine / "log").read_text().count("sleep 10") == 2


def test_the_installer_gives_up_and_says_why_when_the_role_never_comes(machine: Path, sources: Mapping[str, str]) -> None:
    done = install(machine, sources, ROLE_AFTER="9")
    assert done.returncode != 0 and "role" in done.stderr.splitlines()[-1]
    assert "systemctl" not in (machine / "log").read_text() and not (machine / "root" / "etc" / "tocsin" / "agent.key").exists()


def test_the_installer_refuses_another_wheel_than_the_one_asked_for(machine: Path, sources: Mapping[str, str]) -> None:
    done = install(machine, sources, WHEEL_SHA256="0" * 64)
    assert done.returncode != 0 and "SHA-256 differs" in done.stderr
    assert "-m pip" not in (machine / "log").read_text()


def test_every_placeholder_is_filled_in_by_the_template_and_no_other(sources: Mapping[str, str]) -> None:
    filled = set(re.findall(r"'@([A-Z0-9_]+)@'", sources["agent/agent.bicep"]))
    texts = (sources[f"agent/{name}"] for name in ("install.sh", "agent.toml", "cloud-init.yaml"))
    asked = {name for text in texts for name in re.findall("@([A-Z0-9_]+)@", text)}
    assert asked == filled == {*VALUES, "URL", "FLEET", "SCRIPT"}


def test_the_agent_takes_the_settings_that_are_installed(tmp_path: Path, sources: Mapping[str, str]) -> None:
    key = tmp_path / "agent.key"
    key.write_text(KEY)
    key.chmod(0o600)
    config = tmp_path / "agent.toml"
    hooks = '[recipe]\nname = "systemd"\nunits = ["db.service"]\n'
    config.write_text(sources["agent/agent.toml"].replace("@URL@", "https://app.example").replace("@FLEET@", "db") + hooks)
    found = load(config, {})
    assert found.app is not None and (found.app.fleet, found.app.key) == ("db", KEY) and "prepare" in found.hooks


def test_cloud_init_runs_the_installer_that_it_writes(sources: Mapping[str, str]) -> None:
    text = sources["agent/cloud-init.yaml"]
    assert text.startswith("#cloud-config\n")
    made = yaml.safe_load(text.replace("@SCRIPT@", base64.b64encode(sources["agent/install.sh"].encode()).decode()))
    (written,) = made["write_files"]
    assert made["runcmd"] == [[written["path"]]] and written["permissions"] == "0700"
    assert base64.b64decode(written["content"]).decode() == sources["agent/install.sh"]


@pytest.mark.parametrize("given", ["extension", "customData"])
def test_a_vm_gets_the_installer_with_every_placeholder_filled_in(given: str, sources: Mapping[str, str]) -> None:
    made = deployed("agent")
    if given == "extension":
        encoded = made.one("Microsoft.Compute/virtualMachines/extensions", "db1")["properties"]["protectedSettings"]["script"]
    else:
        encoded = yaml.safe_load(base64.b64decode(made.outputs["customData"]))["write_files"][0]["content"]
    wanted = sources["agent/install.sh"]
    config = sources["agent/agent.toml"].replace("@URL@", "https://app.example.com").replace("@FLEET@", "db") + "\n"
    for name, value in {
        "WHEEL_URL": "https://wheels.blob.core.windows.net/wheels/tocsin-0.1.0-py3-none-any.whl",
        "WHEEL_SHA256": "0123456789abcdef" * 4,
        "VAULT_URL": "https://vault.vault.azure.net",
        "SECRET_PREFIX": "agent-",
        "CONFIG": base64.b64encode(config.encode()).decode(),
    }.items():
        wanted = wanted.replace(f"@{name}@", value)
    assert base64.b64decode(encoded).decode() == wanted
    assert not re.search("@[A-Z0-9_]+@", wanted)


def test_azd_finds_the_template_and_the_app() -> None:
    azd = yaml.safe_load((ROOT / "azure.yaml").read_text())
    assert (ROOT / azd["infra"]["path"] / f"{azd['infra']['module']}.bicep").is_file()
    ((name, service),) = azd["services"].items()
    assert {each: service[each] for each in ("project", "language", "host")} == {"project": ".", "language": "python", "host": "function"}
    assert deployed("defaults").one("Microsoft.Web/sites")["tags"]["azd-service-name"] == name
    assert ".azure/" in (ROOT / ".gitignore").read_text().split()
    assert azd["metadata"]["template"] == f"{azd['name']}@{BASE}"


def test_the_app_is_deployed_with_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")
    needed = {"function_app.py", "host.json", "requirements.txt", *(name for name in listed if name.startswith("shared/"))}
    made = {
        ".venv/lib/x.py",
        "app_env/lib/x.py",
        "node_modules/x.js",
        ".azure/prod/.env",
        "local.settings.json",
        "shared/__pycache__/x.pyc",
        "tocsin-0.2.0-py3-none-any.whl",
    }
    # A folder of shared/ keeps its files, whatever its name is.
    needed |= {f"shared/{name}/x.py" for name in ("docs", "build", "tests", "dist", "devhost", "infra", "my_env")}
    for name in {*listed, *made, *needed} - {""}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, timeout=60, check=True)
    command = ["git", "ls-files", "--others", f"--exclude-from={ROOT / '.funcignore'}"]
    deployed_files = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert set(deployed_files) == needed


def test_azd_gives_every_parameter_a_value_that_it_can_hold(sources: Mapping[str, str]) -> None:
    given = {name: each["value"] for name, each in json.loads(sources["main.parameters.json"])["parameters"].items()}
    kinds = parameters()
    # azd generates what has no default and stands neither in this file nor in the environment's configuration.
    assert set(given) == set(kinds) - set(FIRST)
    for name, value in given.items():
        kind = kinds[name].rstrip("?")
        if isinstance(value, str) and "${" in value:
            # azd puts a variable's text into the file as it is, so quotation marks of an array or object would end the string around them.
            assert kind in ("string", "bool", "int"), name
            assert ("=" in value) is kinds[name].endswith("?"), f"azd asks for {name} where its variable is not set"
        else:
            assert isinstance(value, {"string": str, "bool": bool, "int": int, "array": list, "object": dict}[kind]), name
    assert all(re.fullmatch(r"\$\{[A-Z_]+=\}", given[name]) for name in KEYS), "a key comes from the environment alone"


# `bicep` stands in: it notes its arguments, and does as the variables say.
COMPILER = """#!/bin/sh
printf '%s\\n' "$*" >>"$LOG"
case $1 in
  format) [ -z "${BADLY_FORMED:-}" ] || echo "// formed" >>main.bicep ;;
  lint) [ -z "${WARNS:-}" ] || echo "main.bicep(1,1) : Warning no-unused-vars" >&2 ;;
  snapshot)
    case $2 in
      */refused.bicepparam) [ -n "${SHOWS:-}" ] || {
        echo "furtherSettings: the history of deployments would show X" >&2
        for region in ukwest westus; do echo "redundancy: $region has no availability zones" >&2; done
        echo "zoneRedundant: without" >&2; exit 1; } ;;
      *) [ -z "${DIFFERS:-}" ] ;;
    esac ;;
esac
"""


def check(folder: Path, mode: str = "", compiler: bool = True, **change: str) -> tuple[int, str, list[str]]:
    """Run a copy of infra/check.sh: exit code, output, and the commands that the compiler was given."""
    copy, tools = folder / "infra", folder / "bin"
    shutil.copytree(ROOT / "infra", copy)
    tools.mkdir()
    if compiler:
        (tools / "bicep").write_text(COMPILER)
        (tools / "bicep").chmod(0o755)
    for name in [
        "sh",
        "basename",
        "dirname",
        "mktemp",
        "rm",
        "cp",
        "cat",
        "cmp",
        "diff",
        "find",
        "sort",
        "tr",
        "xargs",
        "sha256sum",
        "sed",
        "grep",
    ]:
        (tools / name).symlink_to(shutil.which(name) or name)
    environment = {"PATH": str(tools), "LOG": str(folder / "log"), "TMPDIR": str(folder), **change}
    done = subprocess.run(
        ["sh", str(copy / "check.sh"), *mode.split()], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    asked = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return done.returncode, done.stdout + done.stderr, asked


def test_the_real_compiler_checks_form_lint_and_every_snapshot(tmp_path: Path) -> None:
    code, printed, asked = check(tmp_path)
    assert code == 0 and "NOT" not in printed
    assert {line.split()[0] for line in asked} == {"--version", "format", "lint", "snapshot"}
    checked = [line.split()[1] for line in asked if line.startswith("snapshot") and "--mode validate" in line]
    assert checked == sorted(f"snapshots/{path.name}" for path in FOLDER.glob("*.bicepparam"))


@pytest.mark.parametrize(
    ("fault", "printed"),
    [
        ("BADLY_FORMED", "make snapshots"),
        ("WARNS", "no-unused-vars"),
        ("DIFFERS", "agent.bicepparam"),
        ("SHOWS", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_what_the_real_compiler_finds_is_a_failure(fault: str, printed: str, tmp_path: Path) -> None:
    code, output, _ = check(tmp_path, **{fault: "yes"})
    assert code == 1 and printed in output


def test_without_a_compiler_the_check_says_that_it_did_not_happen(tmp_path: Path) -> None:
    code, printed, _ = check(tmp_path, compiler=False)
    assert code == 0 and "NOT checked" in printed


def test_without_a_compiler_snapshots_cannot_be_written(tmp_path: Path) -> None:
    code, printed, _ = check(tmp_path, "write", compiler=False)
    assert code == 1 and "No Bicep compiler" in printed


def test_digests_are_written_after_the_snapshots(tmp_path: Path) -> None:
    code, _, asked = check(tmp_path, "write", BADLY_FORMED="yes")
    assert code == 0 and len([line for line in asked if "--mode overwrite" in line]) == len(list(FOLDER.glob("*.bicepparam")))
    digests = dict(reversed(line.split("  ")) for line in (tmp_path / "infra/snapshots/sources.sha256").read_text().splitlines())  # type: ignore[misc]
    then = dict(reversed(line.split("  ")) for line in (FOLDER / "sources.sha256").read_text().splitlines())  # type: ignore[misc]
    assert {name for name in digests if digests[name] != then[name]} == {"./main.bicep"} and digests.keys() == then.keys()
