"""A tenant's calls against the OpenAPI document: `fuzzing` says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis

from tests.unit.scheduler.harness import DEMO

from .fuzzing import EXAMPLES, FEW, Running, aim, bounded, call, described, served

VERBS = "/(leases/{partition}|nodes/{node})/"
"""Operators' words: many alike."""
changing = described(admin=False).exclude(method="GET").exclude(path_regex=VERBS)
looking = described(admin=False, examples=FEW).include(method="GET")
saying = described(admin=False, examples=FEW).include(method="POST", path_regex=VERBS)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as found:
        yield found
        # Both accepted and refused calls were made, unless only some of the tests were selected.
        if len(found.statuses) > 20:
            assert found.statuses["POST /api/v1/events"][201] > 20 and found.statuses["POST /api/v1/events"][422] > 20


@changing.parametrize()
@bounded(EXAMPLES)
def test_tenants_calls_are_answered_as_documented(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=False)
    call(case, running, DEMO)


@saying.parametrize()
@bounded(FEW)
def test_manual_controls_are_answered_as_documented(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=False)
    call(case, running, DEMO)


@looking.parametrize()
@bounded(FEW)
def test_tenants_looks_are_answered_as_documented(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=False)
    call(case, running, DEMO)
