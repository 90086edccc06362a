"""The command: its platforms, its parameters and its table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench.__main__ import main as bench
from bench.flex import command, page
from bench.flex.command import Task, cells, changed, figures, parameters, tasks
from bench.flex.platform import Platform
from bench.flex.run import Result, run


def _result(load: str = "hour", **more: Any) -> Result:
    return replace(run(load, Platform(), seconds=7_200.0), **more)


def test_the_targets_hold_for_each_combination_of_the_platforms_values() -> None:
    found = cells(quick=False)
    assert len(found) == len(set(found)) == 3 * 4 * 3 * 4
    assert set(cells(quick=True)) < set(found)


def test_each_parameter_has_a_meaning_and_a_source() -> None:
    assert all(meaning and source for _, _, meaning, source in parameters())
    assert {"poll", "cold", "idle", "timers", "votes", "stuck"} <= {name for name, *_ in parameters()}


def test_a_load_without_targets_of_lateness_runs_on_one_platform_only() -> None:
    assert [(task.part, task.mode) for task in tasks(["idle"], quick=True)] == [("load", mode) for mode in ("auto", "off", "always-ready")]


def test_the_worst_platform_decides_and_is_named() -> None:
    good, bad = Task("cell", "hour"), Task("cell", "hour", Platform(poll=30.0))
    found = figures([(good, _result(late=0.0, p99=2.0)), (bad, _result(late=0.5, p99=9_000.0))])
    assert [(each.value, each.reached) for each in found] == [(50.0, False), (9_000.0, False)]
    assert "1 of 2 platforms over it" in found[0].note and "poll 30 s" in found[0].note


def test_a_changed_parameter_is_used_and_a_wrong_one_is_named() -> None:
    assert changed(["poll=30", "timers=dead"]) == Platform(poll=30.0, timers="dead")
    for wrong, name in (("pol=3", "pol"), ("poll=0", "poll"), ("timers=slow", "timers"), ("cold=x", "x"), ("cold=nan", "cold")):
        with pytest.raises(ValueError, match=name):
            changed([wrong])


def test_json_has_each_figure_with_its_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "run_all", lambda work, jobs, console: [(task, _result()) for task in work[:4]])
    monkeypatch.setattr("sys.argv", ["bench", "flex", "--quick", "--only", "hour", "--json"])
    assert bench() == 0
    found = json.loads(capsys.readouterr().out)["figures"]
    assert found[0]["name"] == "1 event an hour, auto: a month"
    assert found[-2]["details"]["runs"][0]["load"] == "hour"


def test_the_page_shows_the_committed_figures() -> None:
    text = page.PAGE.read_text()
    assert page.updated(text, page.read()) == text
    assert set(page.read()["parameters"]) == {name for name, *_ in parameters()}, "run python -m bench flex --page"


@pytest.mark.parametrize("part", [["--quick"], ["--only", "idle"], ["--set", "poll=5"]])
def test_a_part_of_the_figures_never_replaces_the_page(part: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.parse(["--page", *part])
    assert ended.value.code == 2
    assert "--page" in capsys.readouterr().err
