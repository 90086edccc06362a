"""Scenario files: permitted content, and the reports of faults."""

from __future__ import annotations

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import Problem
from shared.extras.emulator import rules
from shared.extras.emulator.command import is_over
from shared.extras.emulator.scenario import BadScenario, StepSpec, load, scenario_of, steps_of
from tests.paths import ROOT
from tests.texts import assert_text
from tests.unit.extras.emulator.worlds import START, kinds

EXAMPLES = sorted((ROOT / "docs" / "examples" / "emulator").glob("*.toml"))
VMS = [{"name": "n1", "host": "h"}, {"name": "n2", "fault_domain": 1, "scope": "s"}]


def faults(steps: Any = (), **more: Any) -> list[tuple[str, str]]:
    """The faults of a document."""
    with pytest.raises(Problem) as refused:
        scenario_of({"vms": VMS, "steps": list(steps), **more})
    return [(each["pointer"], each["detail"]) for each in refused.value.errors]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "/steps/0"),
    ({"cancel": "a", "start": "a"}, "/steps/0"),
    ({"cancle": "a"}, "/steps/0/cancle"),
    ({"at": "5 s", "clear": {}}, "/steps/0/at"),
    ({"at": 5, "clear": {}}, "/steps/0/at"),
    ({"event": {}}, "/steps/0/event"),
    ({"event": {"vms": ["n1"], "host": "h"}}, "/steps/0/event"),
    ({"event": {"host": "h", "scope": "s"}}, "/steps/0/event"),
    ({"event": {"vms": []}}, "/steps/0/event/vms"),
    ({"event": {"vms": ["n3"]}}, "/steps/0/event"),
    ({"event": {"host": "x"}}, "/steps/0/event"),
    ({"event": {"fault_domain": 1, "scope": "x"}}, "/steps/0/event"),
    ({"event": {"vms": ["n1"], "duration": -2}}, "/steps/0/event/duration"),
    ({"event": {"vms": ["n1"], "id": "1"}}, "/steps/0/event/id"),
    ({"event": {"vms": ["n1"], "others": "PT5"}}, "/steps/0/event/others"),
    ({"event": {"vms": ["n1"], "others": 5}}, "/steps/0/event/others"),
    ({"cancel": "update"}, "/steps/0/cancel"),
    ({"fault": {}}, "/steps/0/fault"),
    ({"fault": {"body": "blank"}}, "/steps/0/fault/body"),
    ({"change": {"event": "a"}}, "/steps/0/change"),
    ({"event": {"vms": ["n1"], "raw": {"NotBefore": datetime(2026, 1, 1)}}}, "/steps/0/event/raw/NotBefore"),
    ({"skip": {"by": 0}}, "/steps/0/skip/by"),
]


@pytest.mark.parametrize(("step", "pointer"), WRONG)
def test_a_wrong_step_is_reported_with_its_place(step: dict[str, Any], pointer: str) -> None:
    assert [where for where, _ in faults([step])] == [pointer]


def test_report_of_a_wrong_step_says_the_reason() -> None:
    assert_text("scenario.wrong-steps", [f"{where}: {what}" for step, _ in WRONG for where, what in faults([step])])


def test_machines_need_names_of_their_own_and_there_must_be_some() -> None:
    [(pointer, detail)] = faults(vms=[{"name": "n1"}, {"name": "n1"}])
    assert pointer == "/vms/1/name"
    assert_text("scenario.machine-twice", detail, name="n1")
    assert faults(vms=[]) == [("/vms", "must not be empty")]
    assert faults(vms=[{}]) == [("/vms/0/name", "is required")]


def test_a_name_counts_from_the_time_of_its_event_not_from_its_place_in_the_file() -> None:
    event = {"at": "PT10S", "event": {"name": "update", "vms": ["n1"]}}
    [(pointer, detail)] = faults([{"at": "PT5S", "cancel": "update"}, event])
    assert pointer == "/steps/0/cancel"
    assert_text("scenario.unknown-event", detail, event="update")
    scenario_of({"vms": VMS, "steps": [{"at": "PT15S", "cancel": "update"}, event]})


def test_two_events_of_one_name_are_refused() -> None:
    event = {"event": {"name": "update", "vms": ["n1"]}}
    [(pointer, detail)] = faults([event, event])
    assert pointer == "/steps/1/event"
    assert_text("scenario.event-twice", detail, name="update")


def test_all_faults_of_a_file_are_reported_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[[vms]]\nname = "n1"\nwidth = 3\n\n[[steps]]\nclear = {}\n\n[[steps]]\nat = "soon"\nclear = {}\n')
    with pytest.raises(BadScenario) as refused:
        load(path)
    assert_text("scenario.faults", str(refused.value), unknown=f"{path}:1: vms[1].width", not_valid=f"{path}:8: steps[2].at")


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("s.toml", "vms = [", "not TOML"),
        ("s.yaml", "vms: [", "not YAML"),
        ("s.yaml", "vms:\n- name: n1\n  name: n2\n", "n"),
        ("s.toml", "", "vms: is required"),
        ("s.toml", None, "cannot be read"),
    ],
)
def test_what_is_no_scenario_is_refused_with_its_path(tmp_path: Path, name: str, text: str | None, why: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadScenario, match=why) as refused:
        load(path)
    assert str(path) in str(refused.value)


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[vms]]\nname = "n1"\n[[steps]]\nat = "PT5S"\nevent = {vms = ["n1"], type = "Reboot"}\n')
    (tmp_path / "s.yaml").write_text("vms:\n- name: n1\nsteps:\n- at: PT5S\n  event: {vms: [n1], type: Reboot}\n")
    assert load(tmp_path / "s.toml") == load(tmp_path / "s.yaml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_ready_made_scenarios_play_to_their_end_without_a_step_that_does_not_fit(path: Path) -> None:
    scenario = load(path)
    assert scenario.about
    world = rules.tick(rules.initial_world(scenario, START), START + 8 * 86_400_000)
    assert is_over(world) and world.ended and "step-refused" not in kinds(world)


def test_the_ready_made_scenarios_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "emulator.md").read_text()
    assert [path.name for path in EXAMPLES if f"[{path.name}](../examples/emulator/{path.name})" not in page] == []


def test_the_page_names_every_key_a_scenario_can_have() -> None:
    page = (ROOT / "docs" / "reference" / "emulator.md").read_text()
    from shared.extras.emulator import scenario as faults

    specs = (faults.VmSpec, faults.ImdsSpec, faults.EventSpec, faults.ChangeSpec, faults.ImpactSpec, faults.HideSpec, faults.ApproveSpec)
    specs = (*specs, faults.ResetSpec, faults.SkipSpec, faults.FaultSpec, StepSpec)
    assert sorted({name for spec in specs for name in spec.model_fields if f"`{name}`" not in page}) == []


def test_the_page_s_example_plays() -> None:
    page = (ROOT / "docs" / "reference" / "emulator.md").read_text()
    examples = page.split("```toml\n")[1:]
    assert examples
    for text in examples:
        world = rules.initial_world(scenario_of(tomllib.loads(text.partition("```")[0])), START)
        assert is_over(rules.tick(world, START + 8 * 86_400_000))


def test_steps_come_alone_or_in_an_array_and_not_as_nothing() -> None:
    assert steps_of({"clear": {}}) == steps_of([{"clear": {}}])
    with pytest.raises(Problem, match="must not be empty"):
        steps_of([])
    with pytest.raises(Problem, match="must be an object"):
        steps_of("clear")
