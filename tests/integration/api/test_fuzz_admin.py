"""An admin's calls against the OpenAPI document: those that are theirs alone, and some on a tenant's behalf. `fuzzing` says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis

from tests.unit.scheduler.harness import ADMIN

from .fuzzing import EXAMPLES, FEW, Running, aim, bounded, call, described, served

own = described(admin=True).include(path_regex="/tenants")
behalf = described(admin=True, examples=FEW, bounds=False).exclude(path_regex="/tenants")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served() as found:
        yield found
        # Both accepted and refused calls were made, unless only some of the tests were selected.
        if len(found.statuses) > 20:
            found_of_channels = found.statuses["PUT /api/v1/tenants/{tenant}/channels/{name}"]
            assert found_of_channels[422] > 20 and found_of_channels[200] + found_of_channels[201] > 0


@own.parametrize()
@bounded(EXAMPLES)
def test_admins_calls_are_answered_as_documented(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=True)
    call(case, running, ADMIN)


@behalf.parametrize()
@bounded(FEW)
def test_admins_calls_for_a_tenant_are_answered_as_documented(case: schemathesis.Case, running: Running) -> None:
    aim(case, admin=True)
    call(case, running, ADMIN)
