"""The fixtures of the command's screens and the states that it colours agree with the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from shared.cli.terminal.output import STYLES
from shared.web.local_client import LocalReply
from tests.integration.api.conftest import DOCUMENT, hold_against_document
from tests.unit.cli import stage

POSTED = ("fleets/web/leases/plan",)
QUESTIONS = ["readyz", *(f"v1/{path}" for path in (*stage.LISTS, *stage.ONES))]


@pytest.mark.parametrize("path", QUESTIONS)
def test_answer_on_the_stage_is_one_that_the_app_may_give(path: str) -> None:
    method = "POST" if path.removeprefix("v1/") in POSTED else "GET"
    answer = stage.answer(httpx.Request(method, f"https://app.example/api/{path}"))
    headers = {name: answer.headers.get(name, "x") for name in ("content-type", "etag", "x-request-id")}
    hold_against_document(method, f"/api/{path}", LocalReply(answer.status_code, headers, json.dumps(answer.json()).encode()))


def test_every_coloured_state_is_one_that_the_app_uses() -> None:
    assert set(STYLES) - set(strings_of(DOCUMENT)) == {"bad", "look"}, "those two are the doctor's"


def strings_of(schema: Any) -> Iterator[str]:
    """The values that a document lists."""
    if isinstance(schema, dict):
        for each in (schema.get("const"), *(schema.get("enum") or ()), *(schema.get("examples") or ())):
            if isinstance(each, str):
                yield each
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from strings_of(each)
