"""The command as a process, over HTTP, against the app in memory."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from devhost.azurite import ROOT
from tests import waiting
from tests.integration.api.test_http import running

COMMAND = (sys.executable, "-m", "shared.cli")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running(tmp_path_factory.mktemp("cli")) as url:
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        yield {**keep, "TOCSIN_URL": url, "TOCSIN_KEY": "local-demo-key", "TOCSIN_PROFILES": "/nonexistent"}


def tocsin(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return waiting.run([*COMMAND, *arguments], cwd=ROOT, env=environment)


def test_import_that_is_killed_goes_on_and_doubles_and_loses_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    count = 400
    url = f"{environment['TOCSIN_URL']}/api/v1/tenants/slow"
    with httpx.Client(headers={"authorization": "Bearer local-admin-key"}, timeout=180, trust_env=False) as admin:
        # So that it cannot be done before it is killed.
        assert admin.put(url, json={"limits": {"events_per_second": 10}}).status_code == 201
        assert admin.put(f"{url}/channels/default", json={"type": "http", "url": "http://127.0.0.1:9/"}).status_code == 201
        environment = {**environment, "TOCSIN_KEY": admin.post(f"{url}/keys", json={"scopes": ["events"]}).json()["key"]}
    file = tmp_path / "events.ndjson"
    lines = [json.dumps({"due": f"2031-01-15T08:00:{number % 60:02}Z", "payload": number}) for number in range(count)]
    lines[7] = '{"due": "never", "payload": 7}'
    file.write_text("\n".join(lines))
    arguments = [*COMMAND, "events", "import", str(file), "--batch", "10", "--in-flight", "2"]
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    progress = Path(f"{file}.progress")

    def line() -> Any:
        assert process.poll() is None, "it ended before it could be killed"
        return progress.exists() and json.loads(progress.read_text())["line"]

    waiting.wait_until(line, "the first progress", pause=0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with httpx.Client(headers={"authorization": "Bearer local-admin-key"}, timeout=180, trust_env=False) as admin:
        assert admin.put(url, json={}).status_code == 200

    again = tocsin(environment, "events", "import", str(file), "--batch", "50", "--json")
    assert again.returncode == 1, again.stderr
    summary = json.loads(again.stdout)
    assert summary["lines"] == count and summary["accepted"] + summary["known"] == count - 1 and summary["rejected"] == 1
    [reject] = [json.loads(text) for text in Path(summary["rejects"]).read_text().splitlines()]
    assert reject["line"] == 8 and "/due" in reject["why"] and not progress.exists()
    window = ("--from", "2031-01-15T00:00:00Z", "--to", "2031-01-16T00:00:00Z")
    found = tocsin(environment, "events", "list", *window, "-n", "100000", "--json")
    assert sorted(json.loads(text)["payload"] for text in found.stdout.splitlines()) == sorted({*range(count)} - {7})


def test_key_comes_from_a_program_and_is_shown_nowhere(environment: dict[str, str], tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    command = f'{sys.executable} -c \'print(\\"wrong-\\" + \\"secret-key\\")\''
    profiles.write_text(f'[bad]\nurl = "{environment["TOCSIN_URL"]}"\nkey_command = "{command}"\n')
    result = tocsin({**environment, "TOCSIN_PROFILES": str(profiles)}, "events", "list", "--profile", "bad")
    assert result.returncode == 3 and "TOCSIN_KEY" in result.stderr and "wrong-secret-key" not in result.stdout + result.stderr


def test_app_that_is_not_there_is_unreachable(environment: dict[str, str]) -> None:
    result = tocsin({**environment, "TOCSIN_URL": "http://127.0.0.1:9"}, "leases", "fleets")
    assert result.returncode == 4 and "where: TOCSIN_URL" in result.stderr


def test_status_is_ready(environment: dict[str, str]) -> None:
    result = tocsin(environment, "status", "--json")
    assert result.returncode == 0 and json.loads(result.stdout)["health"]["status"] == "ready", result.stderr


def _default_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _handled_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_tail_follows_an_event_to_its_delivery(environment: dict[str, str]) -> None:
    command = [*COMMAND, "events", "tail", "--every", "0.2", "--json"]
    # A shell that started the tests in the background has its children ignore Ctrl-C.
    tail = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=_handled_interrupts)
    try:
        assert tocsin(environment, "events", "create", "--delay", "PT1S", "--id", "followed").returncode == 0
        assert tail.stdout is not None
        for line in tail.stdout:
            if json.loads(line)["id"] == "followed" and json.loads(line)["state"] == "delivered":
                break
    finally:
        tail.send_signal(signal.SIGINT)
        assert waiting.ended(tail, "the command") == 130
        assert tail.stdout is not None
        tail.stdout.close()


def test_bash_completes_groups_commands_and_options(environment: dict[str, str]) -> None:
    assert "_TOCSIN_COMPLETE=complete_bash" in tocsin(environment, "completion", "bash").stdout
    for line, expected in (("tocsin ev", "events"), ("tocsin leases dra", "drain"), ("tocsin turns list --ti", "--times")):
        arguments = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TOCSIN_COMPLETE": "complete_bash"}
        assert expected in tocsin({**environment, **arguments}).stdout.split()


def test_zsh_and_fish_complete_the_same_commands(environment: dict[str, str]) -> None:
    assert "#compdef tocsin" in tocsin(environment, "completion", "zsh").stdout
    assert "complete --command tocsin" in tocsin(environment, "completion", "fish").stdout
    for shell, more in (("zsh", {}), ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"})):
        arguments = {"_TYPER_COMPLETE_ARGS": "tocsin leases dra", "_TOCSIN_COMPLETE": f"complete_{shell}", **more}
        assert "drain" in tocsin({**environment, **arguments}).stdout, shell


def test_bash_itself_completes(environment: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "tocsin"
    program.write_text(f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m shared.cli "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(tocsin completion bash)"; f=$(complete -p tocsin | sed "s/.*-F \\([^ ]*\\).*/\\1/");'
        'COMP_WORDS=(tocsin leases dra); COMP_CWORD=2; COMP_LINE="tocsin leases dra"; COMP_POINT=17; $f tocsin dra leases;'
        'echo "${COMPREPLY[*]}"'
    )
    path = {"PATH": f"{tmp_path}:{environment['PATH']}"}
    result = waiting.run(["bash", "-c", script], env={**environment, **path})
    assert result.stdout.split() == ["drain"], result


STARTED = """
import signal, sys
from shared.cli import start

def told(number, handler, set=signal.signal):
    before = set(number, handler)
    if handler is signal.SIG_DFL:
        print(flush=True)
    return before

signal.signal = told
sys.argv[1:] = ["leases", "fleets", "--watch", "1"]
start.main()
"""


@pytest.mark.parametrize("wait", [0.0, 0.15, 0.3])
def test_interrupt_while_it_starts_leaves_no_traceback(environment: dict[str, str], wait: float) -> None:
    # Prints a line once the command handles the signal. Before that, Python itself is starting, and nothing can handle it.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    arguments = [sys.executable, "-c", STARTED]
    process = subprocess.Popen(arguments, cwd=ROOT, env=environment, text=True, preexec_fn=_default_signals, **pipes)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    time.sleep(wait)
    process.send_signal(signal.SIGINT)
    _, err = waiting.all_output(process, "the command")
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in err, err


BEFORE = """
import os, signal, sys
from shared.cli import main, start
main.build = lambda given: lambda **_: os.kill(os.getpid(), signal.SIGINT)
sys.argv[1:] = ["leases", "fleets"]
start.main()
"""


def test_interrupt_before_the_command_handles_it_is_130(environment: dict[str, str]) -> None:
    result = waiting.run([sys.executable, "-c", BEFORE], cwd=ROOT, env=environment, preexec_fn=_default_signals)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_pipe_that_is_closed_early_is_no_trouble(environment: dict[str, str]) -> None:
    assert tocsin(environment, "events", "create", "--delay", "PT1H", "--id", "piped").returncode == 0
    arguments = f"{' '.join(COMMAND)} events list --json | head -n 0"
    result = waiting.run(["bash", "-c", arguments], cwd=ROOT, env=environment)
    assert result.returncode == 0 and result.stderr == ""


def _writes_no_file() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_output_that_takes_nothing_is_reported_and_what_is_closed_is_empty(environment: dict[str, str], tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as full:
        arguments = [*COMMAND, "connections"]
        pipes = {"stdout": full, "stderr": subprocess.PIPE}
        result = waiting.run(arguments, cwd=ROOT, env=environment, preexec_fn=_writes_no_file, **pipes)
    assert result.returncode == 1 and re.fullmatch("tocsin: .*: File too large\n", result.stderr)
    for arguments in ("leases delete web", "events create --delay PT1S --payload @-"):
        asked = ["bash", "-c", f"{' '.join(COMMAND)} {arguments} <&-"]
        result = waiting.run(asked, cwd=ROOT, env=environment)
        assert result.returncode == 2 and result.stderr.startswith("tocsin: "), result
    arguments = ["bash", "-c", f"{' '.join(COMMAND)} connections >&-"]
    assert waiting.run(arguments, cwd=ROOT, env=environment).returncode == 0


def test_checkpoint_run_shows_that_it_waits_and_why(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text(f'[here]\nurl = "{environment["TOCSIN_URL"]}"\nkey_env = "HERE_KEY"\n')
    given = {name: value for name, value in environment.items() if not name.startswith("TOCSIN_")}
    given |= {"TOCSIN_PROFILES": str(tmp_path / "profiles.toml"), "HERE_KEY": "local-demo-key"}
    arguments = ("checkpoint", "run", "--profile", "here", "--node", "n1", "--wait", "60")
    none = tocsin(given, *arguments, "--fleet", "nowhere", "--", "true")
    waits, *why = none.stderr.splitlines()
    assert none.returncode == 125 and waits.endswith(": fleet nowhere, node n1, role secondary")
    assert len(why) == 3 and "there is no fleet 'nowhere'" in why[0] and "Traceback" not in none.stderr
    assert tocsin(given, "leases", "create", "turning", "--profile", "here", "--partitions", "1").returncode == 0
    done = tocsin(given, *arguments, "--quiet", "--fleet", "turning", "--", "sh", "-c", "env")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "TOCSIN_EPOCH=" in done.stdout and "local-demo-key" not in done.stdout
