"""Each type of problem that a route answers has a meaning on the reference page, and no other code has one."""

from __future__ import annotations

from devhost import openapi_document
from devhost.pages import problems
from shared.web.problem_types import MEANINGS


def test_every_code_of_a_route_has_a_meaning_and_no_other_code_has_one() -> None:
    assert {*problems.answers(openapi_document.build()), *problems.IN_LINES} == set(MEANINGS)


def test_page_is_generated() -> None:
    assert problems.PAGE.read_text() == problems.page(), "run `make problems`"
