"""Pages say how many broken variants the model checker finds: as many as the tests require."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.model.approvals.prove_approvals import EXPECTED as APPROVALS
from tests.model.changes.prove_changes import EXPECTED as CHANGES
from tests.model.guard.prove_guard import EXPECTED as GUARD
from tests.model.keys.prove_key_turns import EXPECTED as KEYS
from tests.model.leases.prove_leases import STEPS as LEASES
from tests.model.leases.prove_resizing import STEPS as RESIZES
from tests.model.locks.prove_locks import EXPECTED as LOCKS
from tests.model.maintenance.prove_agent import EXPECTED as AGENT
from tests.model.notices.prove_notices import EXPECTED as NOTICES
from tests.model.pairs.prove_pairs import EXPECTED as PAIRS
from tests.model.shards.prove_mutants import EXPECTED as SHARDS
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("leases.md", [*LEASES, *RESIZES]),
        ("leases.md", LOCKS),
        ("maintenance.md", [*AGENT, *GUARD, *APPROVALS]),
        ("durability.md", PAIRS),
        ("ordering-keys.md", KEYS),
        ("scheduler.md", [*SHARDS, *NOTICES, *CHANGES]),
    ],
    ids=["leases", "locks", "maintenance", "pairs", "keys", "shards"],
)
def test_pages_say_how_many_broken_variants_the_tests_catch(page: str, found: Collection[str]) -> None:
    assert f"{len(found)} broken variants" in (ROOT / "docs" / "explain" / page).read_text()
