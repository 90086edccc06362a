"""Nothing is taken away from callers unless the recording says so."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.surface import FILE, Surface, lost, of_api, present

RECORDED: Surface = json.loads(FILE.read_text())


def test_callers_lose_nothing() -> None:
    now = present()
    assert len(now["operations"]) > 100 and len(now["commands"]) > 80 and len(now["given"]) > 100
    assert lost(RECORDED, now) == [], "keep it, or announce the break (docs/reference/compatibility.md) and run `python -m tests.surface`"


def changed(change: Callable[[Surface], Any]) -> list[str]:
    now = copy.deepcopy(RECORDED)
    change(now)
    return lost(RECORDED, now)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda now: now["operations"].pop("GET /api/v1/stats"), "GET /api/v1/stats is gone"),
        (lambda now: now["operations"]["GET /api/v1/events"]["parameters"].pop("state"), "GET /api/v1/events parameter: state is gone"),
        (
            lambda now: now["operations"]["GET /api/v1/events"]["parameters"].update(state="!"),
            "GET /api/v1/events parameter: state is needed",
        ),
        (lambda now: now["operations"]["POST /api/v1/events"]["answers"].pop("201"), "POST /api/v1/events does not answer 201"),
        (
            lambda now: now["operations"]["POST /api/v1/schedules/{id}/pause"].update(body={"application/json": "PauseIn"}),
            "POST /api/v1/schedules/{id}/pause needs a body",
        ),
        (lambda now: now["commands"].pop("tocsin status"), "tocsin status is gone"),
        (lambda now: now["commands"]["tocsin events list"].pop("--state"), "tocsin events list: --state is gone"),
        (lambda now: now["taken"]["EventIn"].pop("labels"), "request EventIn: labels is gone"),
        (lambda now: now["taken"]["EventIn"].update(new="string!"), "request EventIn: new is needed"),
        (lambda now: now["taken"]["EventIn"].update(id="integer"), "request EventIn: id was string and is integer"),
        (lambda now: now["given"]["StatsOut"].pop("open"), "answer StatsOut: open is gone"),
        (lambda now: now["given"]["StatsOut"].update(open="integer"), "answer StatsOut: open may be missing"),
        (lambda now: now["given"]["StatsOut"].update(open="string!"), "answer StatsOut: open was integer! and is string!"),
    ],
)
def test_what_is_taken_away_is_found(change: Callable[[Surface], Any], found: str) -> None:
    assert changed(change) == [found]


@pytest.mark.parametrize(
    "change",
    [
        lambda now: now["operations"].update({"GET /api/v1/new": now["operations"]["GET /api/v1/stats"]}),
        lambda now: now["operations"]["GET /api/v1/events"]["parameters"].update(new=""),
        lambda now: now["operations"]["POST /api/v1/schedules/{id}/pause"].update(body={"application/json": "PauseIn?"}),
        lambda now: now["commands"]["tocsin status"].update({"--new": ""}),
        lambda now: now["taken"]["EventIn"].update(new="string"),
        lambda now: now["given"]["StatsOut"].update(new="integer!"),
    ],
)
def test_additions_take_nothing_away(change: Callable[[Surface], Any]) -> None:
    assert changed(change) == []


def test_values_may_be_added_and_those_of_requests_may_not_go() -> None:
    def surface(*values: str) -> Surface:
        schema = {"properties": {"state": {"enum": list(values)}}}
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/S"}}}
        put = {"requestBody": {"content": content}, "responses": {"200": {"content": content}}}
        return {**of_api({"paths": {"/s": {"put": put}}, "components": {"schemas": {"S": schema}}}), "commands": {}}

    assert lost(surface("a", "b"), surface("a", "b", "c")) == []
    assert lost(surface("a", "b"), surface("a")) == ['request S: state was "a" | "b" and is "a"']
