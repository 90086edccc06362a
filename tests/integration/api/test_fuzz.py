"""A tenant's calls against the OpenAPI document: `fuzzing` says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from schemathesis.schemas import BaseSchema

from tests.unit.scheduler.harness import DEMO

from .fuzzing import EXAMPLES, FEW, Running, aim, call, described, fuzz, operations, served

OPERATIONS = operations(admin=False)
VERBS = ("/leases/{partition}/", "/nodes/{node}/")
"""Operators' words: many alike."""
SAYING = [each for each in OPERATIONS if each.startswith("POST ") and any(verb in each for verb in VERBS)]
LOOKING = [each for each in OPERATIONS if each.startswith("GET ")]
CHANGING = [each for each in OPERATIONS if not each.startswith("GET ") and not any(verb in each for verb in VERBS)]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as found:
        yield found
        # Both accepted and refused calls were made, unless only some of the tests were selected.
        if len(found.statuses) > 20:
            assert found.statuses["POST /api/v1/events"][201] > 20 and found.statuses["POST /api/v1/events"][422] > 20


@pytest.fixture(scope="module")
def document() -> BaseSchema:
    return described(admin=False)


@pytest.fixture(scope="module")
def short() -> BaseSchema:
    """The same with few examples."""
    return described(admin=False, examples=FEW)


def as_tenant(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=False)
    call(case, running, DEMO)


@pytest.mark.parametrize("operation", CHANGING)
def test_tenants_calls_are_answered_as_documented(operation: str, document: BaseSchema, running: Running) -> None:
    fuzz(document, operation, EXAMPLES, lambda case: as_tenant(case, running))


@pytest.mark.parametrize("operation", SAYING)
def test_manual_controls_are_answered_as_documented(operation: str, short: BaseSchema, running: Running) -> None:
    fuzz(short, operation, FEW, lambda case: as_tenant(case, running))


@pytest.mark.parametrize("operation", LOOKING)
def test_tenants_looks_are_answered_as_documented(operation: str, short: BaseSchema, running: Running) -> None:
    fuzz(short, operation, FEW, lambda case: as_tenant(case, running))
