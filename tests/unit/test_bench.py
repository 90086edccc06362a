"""The benchmarks use parts of the product that nothing else uses: their modules load, and the command shows their rows."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import pkgutil
import re

import pytest
from rich.console import Console

import bench
from bench import report
from bench.__main__ import parse, run_all
from bench.registry import BENCHES, Bench
from bench.report import Figure
from bench.tools.stage import Run
from tests.paths import ROOT, docs_pages

MODULES = sorted(each.name for each in pkgutil.walk_packages(bench.__path__, "bench."))


def test_modules_of_every_folder_are_found() -> None:
    assert {"bench.bodies", "bench.events.singles", "bench.leases.azurite", "bench.tools.stage"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_part_of_the_benchmarks_loads(name: str) -> None:
    importlib.import_module(name)


def test_command_names_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ended.value.code == 0
    assert [[name, bench.about] for name, bench in BENCHES.items()] == [line for line in lines if line[:1] and line[0] in BENCHES]


def test_command_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["herd", "herds"])
    assert ended.value.code == 2
    assert "no such benchmarks: herds;" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["herd", "cpu", "--quick"], ["--only", "herd", "cpu"], ["herd", "--only", "cpu", "herd"]])
def test_command_takes_names_in_both_ways(arguments: list[str]) -> None:
    assert parse(arguments).names == ["herd", "cpu"]


def test_command_without_names_measures_all() -> None:
    assert parse([]).names == list(BENCHES)


def test_rows_of_json_have_figure_target_and_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    async def good(run: Run) -> list[Figure]:
        return [Figure("fast", 3.0, "ms", "<=", 20.0), Figure("slow", 30.0, "ms", "<=", 20.0), Figure("none", None, "", ">", 1.0)]

    async def bad(run: Run) -> list[Figure]:
        raise RuntimeError("no storage")

    async def plain(run: Run) -> list[Figure]:
        return [Figure("seen", 1.0, "/s")]

    for name, measure in (("good", good), ("bad", bad), ("plain", plain)):
        monkeypatch.setitem(BENCHES, name, Bench("", measure))
    figures = asyncio.run(run_all(parse(["good", "bad", "plain", "--quick"]), Console(file=io.StringIO())))
    rows = json.loads(report.as_json(figures, {}))["figures"]
    assert [(row["bench"], row["name"], row["value"], row["target"], row["verdict"]) for row in rows] == [
        ("good", "fast", 3.0, "<= 20.0 ms", "reached"),
        ("good", "slow", 30.0, "<= 20.0 ms", "missed"),
        ("good", "none", None, "> 1.00", "not measured"),
        ("bad", "bad", None, "", "failed"),
        ("plain", "seen", 1.0, "", None),
    ]
    assert rows[3]["note"] == "failed: RuntimeError: no storage"


def test_pages_name_benchmarks_that_exist() -> None:
    pages = [*docs_pages(), ROOT / "README.md"]
    command = re.compile(r"`(?:python -m )?bench ((?!(?:cost|cold|flex|profile)\b)[a-z][a-z0-9-]*)")
    named = {(page.name, name) for page in pages for name in command.findall(page.read_text())}
    assert {name for _, name in named} >= {"cluster", "herd", "tenants-300"}
    assert not [each for each in sorted(named) if each[1] not in BENCHES]
