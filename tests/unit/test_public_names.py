"""The public names of version 0.1.0: applications that import them keep working."""

from __future__ import annotations

import importlib

import pytest

NAMES = {
    "shared": """AsyncClient BadDelivery Batch BatchLine BatchStopped Changed Client Conflict Delivery Event Fault Forbidden Invalid
        NewEvent NotFound Refused Schedule ServerFailed Stats TocsinError TooMany Unauthenticated Unreachable Unreadable verify""",
    "shared.leases": "FencedBatch FleetMissing HttpTables LeaseKeeper NameInUse StaleEpoch",
    "shared.checkpoints": "CheckpointParticipant Health NameInUse Turn TurnLost",
    "shared.testing": "BlockingTocsin Received Receiver SettableClock Tocsin Verdict memory_storage",
    "shared.extras.emulator": "BadScenario Emulator Scenario load scenario_of",
}
"""`shared` is the package `tocsin` in the wheel."""


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_is_exported(module: str) -> None:
    found = importlib.import_module(module)
    names = NAMES[module].split()
    assert set(names) <= set(found.__all__)
    assert all(callable(getattr(found, name)) for name in names)
