"""`python -m devhost.conformance` as people run it, on Azurite."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devhost.azurite import ROOT, Azurite
from devhost.conformance.__main__ import main
from devhost.conformance.access import CONNECTION, StorageAccess
from devhost.conformance.naming import TABLES, Run
from devhost.conformance.parts import PARTS, Options
from devhost.conformance.removal import Housekeeper, Leftovers
from devhost.conformance.report import Report
from tests import waiting
from tests.waiting import wait_until

SELECTED = "test_blocking or test_turns"


def environment(storage: str) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**keep, CONNECTION: storage}


def housekeeping[T](storage: str, work: Callable[[Housekeeper], Awaitable[T]]) -> T:
    async def run() -> T:
        keeper = Housekeeper(StorageAccess(connection=storage))
        try:
            return await work(keeper)
        finally:
            await keeper.close()

    return asyncio.run(run())


def left(storage: str, run: Run | None = None) -> Leftovers:
    return housekeeping(storage, lambda keeper: keeper.find(run))


def play(storage: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "devhost.conformance", "--yes", "--json", *arguments]
    return waiting.run(command, cwd=ROOT, env=environment(storage))


def test_every_part_holds_and_everything_is_removed(azurite: Azurite) -> None:
    storage = azurite.connection_string
    done = play(storage, "--minutes", "0.05", "--select", SELECTED)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    names = [check["name"] for check in report["checks"]]
    assert {"access", "blocking tables", "turns", "gate", "ETags hold the Timestamp", "throttling", "load, nothing lost"} <= set(names)
    assert "queues" not in names and report["failed"] == 0
    assert report["load"]["events"] > 0 and report["milliseconds"]["lateness of deliveries"]["count"] > 0
    assert {"point read", "query", "batch", "queue send", "queue receive"} <= report["milliseconds"].keys()
    assert 0 < report["operations"]["usd"] < 0.01 and report["estimate"]["usd"] > 0
    assert report["removed"] > 10 and report["left"] == [] and not left(storage, Run(report["run"]))
    assert "estimate " in done.stderr and "AccountKey" not in done.stdout + done.stderr


@pytest.mark.long
def test_the_whole_suite_holds(azurite: Azurite) -> None:
    done = play(azurite.connection_string, "--minutes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert {"limits", "queues", "side by side", "tables query", "tables write"} <= {check["name"] for check in report["checks"]}
    assert not left(azurite.connection_string, Run(report["run"]))


@pytest.mark.parametrize(
    ("part", "number", "code"),
    [("suite", signal.SIGINT, 130), pytest.param("load", signal.SIGTERM, 143, marks=pytest.mark.long)],
)
def test_a_signal_ends_the_run_and_everything_is_removed(
    azurite: Azurite, tmp_path: Path, part: str, number: signal.Signals, code: int
) -> None:
    output, storage = tmp_path / "output.txt", azurite.connection_string
    command = [sys.executable, "-m", "devhost.conformance", "--yes", "--only", part]
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(storage), stdout=file, stderr=file)
    try:

        def run() -> Run | None:
            line = next((line for line in output.read_text().splitlines() if line.startswith("run ")), None)
            return Run(line.split()[1].rstrip(":")) if line else None

        found: Run = wait_until(run, "the run's id")
        # More than the access check makes.
        wait_until(lambda: len(left(storage, found).tables) > 3, "tables of the run")
        process.send_signal(number)
        assert waiting.ended(process, "the run", seen=output.read_text) == code, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert "removed  " in output.read_text() and not left(storage, found)


def make(storage: str, run: Run) -> None:
    async def create() -> None:
        access = StorageAccess(connection=storage, run=run)
        tables, queues = access.tables(), access.queues()
        await tables.ensure(["Left"])
        await queues.ensure(["left"])
        await tables.close()
        await queues.close()

    asyncio.run(create())


def test_clean_removes_old_runs_or_the_named_one_and_nothing_else(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, now = azurite.connection_string, datetime.now(UTC)
    monkeypatch.setenv(CONNECTION, storage)
    dead, young = Run.new(now - timedelta(hours=25)), Run.new(now - timedelta(hours=1))
    make(storage, dead)
    make(storage, young)
    foreign = f"{TABLES}Notes"

    async def create() -> None:
        tables = StorageAccess(connection=storage).tables()
        await tables.ensure([foreign])
        await tables.close()

    asyncio.run(create())
    assert main(["--clean"]) == 2 and left(storage, dead), "there was no answer to the question"
    assert main(["--clean", "--yes"]) == 0
    assert not left(storage, dead) and len(left(storage, young).tables) == len(left(storage, young).queues) == 1
    assert main(["--clean", young.id, "--yes"]) == 0 and not left(storage, young)
    assert foreign in housekeeping(storage, lambda keeper: keeper.list_tables(TABLES))


async def failing(access: StorageAccess, report: Report, options: Options) -> None:
    report.add("a check", "FAILED", "on purpose")


def test_a_failed_check_and_what_cannot_be_removed_have_their_exit_codes(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CONNECTION, azurite.connection_string)
    monkeypatch.setitem(PARTS, "load", replace(PARTS["load"], run=failing))
    assert main(["--yes", "--only", "load"]) == 1
    assert "FAILED   a check: on purpose" in capsys.readouterr().out

    async def removed(keeper: Housekeeper, found: Leftovers) -> Leftovers:
        return found

    monkeypatch.setattr("devhost.conformance.__main__.ROUNDS", 1)
    with monkeypatch.context() as stuck:
        stuck.setattr(Housekeeper, "remove", removed)
        assert main(["--yes", "--only", "load"]) == 3
    said = capsys.readouterr().out
    [run] = [line.split()[1].rstrip(":") for line in said.splitlines() if line.startswith("run ")]
    assert f"LEFT     {Run(run).tables}Access, {Run(run).queues}access" in said
    assert f"devhost.conformance --clean {run}" in said
    assert main(["--clean", run, "--yes"]) == 0 and not left(azurite.connection_string, Run(run))


def test_without_an_answer_or_rights_it_says_what_to_do(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CONNECTION, azurite.connection_string.replace("AccountKey=Eby8", "AccountKey=Abc8"))
    assert main(["--yes", "--only", "load"]) == 2
    assert f"the key in {CONNECTION} is not this account's" in capsys.readouterr().err
    monkeypatch.setenv(CONNECTION, azurite.connection_string.replace(f":{azurite.table}/", ":9/"))
    assert main(["--yes", "--only", "load"]) == 2
    said = capsys.readouterr()
    assert "http://127.0.0.1:9/devstoreaccount1 " in said.err and "LEFT" not in said.out
