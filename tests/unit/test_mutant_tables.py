"""Pages list the mutants of the model checker: their names, broken properties and steps are those that the tests require."""

from __future__ import annotations

import pytest

from tests.model.keys.test_key_turns import EXPECTED as KEYS
from tests.model.leases.test_lease_protocol import STEPS as LEASES
from tests.model.leases.test_lease_resizing import STEPS as RESIZES
from tests.model.notices.test_notice_protocol import EXPECTED as NOTICES
from tests.model.pairs.test_pair_protocol import EXPECTED as PAIRS
from tests.model.shards.test_shard_mutants import EXPECTED as SHARDS
from tests.paths import ROOT


def rows(page: str) -> list[list[str]]:
    """Return the cells of all tables of a page of docs/explain, without code marks and the unit of a first row."""
    lines = (ROOT / "docs" / "explain" / page).read_text().splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip().replace("`", "").removesuffix(" steps") for cell in row] for row in cells]


def without_code_marks(row: list[str]) -> list[str]:
    return [cell.replace("`", "") for cell in row]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("leases.md", [[name, str(steps)] for name, steps in (LEASES | RESIZES).items()]),
        ("durability.md", [[name, broken, str(steps)] for name, (broken, steps) in PAIRS.items()]),
        ("ordering-keys.md", [[name, broken] for name, broken in KEYS.items()]),
        ("scheduler.md", [[name, broken, str(steps)] for name, (broken, steps) in (SHARDS | NOTICES).items()]),
    ],
    ids=["leases", "pairs", "keys", "shards"],
)
def test_pages_list_the_mutants_that_the_tests_catch(page: str, expected: list[list[str]]) -> None:
    assert expected
    found = rows(page)
    assert [row for row in map(without_code_marks, expected) if row not in found] == []
