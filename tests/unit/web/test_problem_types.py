"""Each type of problem that a route answers has a meaning on the reference page, and no other code has one."""

from __future__ import annotations

from devhost import openapi_document, problem_page
from shared.web.problem_types import MEANINGS


def test_every_code_of_a_route_has_a_meaning_and_no_other_code_has_one() -> None:
    assert {*problem_page.answers(openapi_document.build()), *problem_page.IN_LINES} == set(MEANINGS)


def test_page_is_generated() -> None:
    assert problem_page.PAGE.read_text() == problem_page.page(), "run `make problems`"
