"""An admin's calls against the OpenAPI document: those that are theirs alone, and some on a tenant's behalf. `fuzzing` says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from schemathesis.schemas import BaseSchema

from tests.unit.scheduler.harness import ADMIN

from .fuzzing import EXAMPLES, FEW, Running, aim, call, described, fuzz, operations, served

OPERATIONS = operations(admin=True)
OWN = [each for each in OPERATIONS if "/tenants" in each]
BEHALF = [each for each in OPERATIONS if "/tenants" not in each]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as found:
        yield found
        # Both accepted and refused calls were made, unless only some of the tests were selected.
        if len(found.statuses) > 20:
            found_of_channels = found.statuses["PUT /api/v1/tenants/{tenant}/channels/{name}"]
            assert found_of_channels[422] > 20 and found_of_channels[200] + found_of_channels[201] > 0


@pytest.fixture(scope="module")
def document() -> BaseSchema:
    return described(admin=True)


@pytest.fixture(scope="module")
def short() -> BaseSchema:
    """The same with few examples, and without those for each bound of each field: tenants' calls have them."""
    return described(admin=True, examples=FEW, bounds=False)


def as_admin(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=True)
    call(case, running, ADMIN)


@pytest.mark.parametrize("operation", OWN)
def test_admins_calls_are_answered_as_documented(operation: str, document: BaseSchema, running: Running) -> None:
    fuzz(document, operation, EXAMPLES, lambda case: as_admin(case, running))


@pytest.mark.parametrize("operation", BEHALF)
def test_admins_calls_for_a_tenant_are_answered_as_documented(operation: str, short: BaseSchema, running: Running) -> None:
    fuzz(short, operation, FEW, lambda case: as_admin(case, running))
