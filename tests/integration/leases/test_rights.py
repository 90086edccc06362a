"""Missing rights and missing tables on the emulator: the keeper tells it once, waits, and joins when it is mended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from devhost.azurite import Azurite
from shared.core.clock import steady
from shared.core.errors import Rejected, TocsinError
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.keeper import FleetMissing, LeaseKeeper
from shared.leases.profiles import Profile
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, MoveLimits, fleet_key
from shared.storage.azure.tables import AzureTables
from shared.storage.blocking import HttpTables
from shared.storage.names import FLEETS

from .test_processes import BUSY, until

FLEET = Fleet(4, Profile(0.4, 10, 11.5), MoveLimits(claims_per_cycle=4, drain=1))


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    with Azurite(memory=True) as running:
        yield running


@pytest.fixture
def tables(azurite: Azurite) -> Iterator[HttpTables]:
    found = HttpTables.from_connection_string(azurite.connection_string)
    yield found
    found.close()


async def create(azurite: Azurite, tables: HttpTables) -> None:
    setup = AzureTables.from_connection_string(azurite.connection_string)
    await setup.ensure([FLEETS])
    await setup.close()
    ThreadRunner(tables, steady, 5).run(takeover.create_fleet(fleet_key("default", "fleet"), FLEET))


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_table_that_is_missing_is_reported_once_and_waited_for(
    azurite: Azurite, tables: HttpTables, caplog: pytest.LogCaptureFixture
) -> None:
    with LeaseKeeper("fleet", "a", tables) as keeper:
        until(lambda: keeper.counts["failed"] >= 2, BUSY, "refusals")
        [error] = errors(caplog)
        assert error.endswith(": TableNotFound (404)")
        await create(azurite, tables)
        until(lambda: len(keeper.owned()) == FLEET.partitions, BUSY, "everything")
    with LeaseKeeper("other", "a", tables) as keeper, pytest.raises(FleetMissing, match="fleet 'default:other' "):
        keeper.wait(BUSY)


class Swapped:
    """Tables behind a wrong key, until it is put right."""

    def __init__(self, wrong: HttpTables) -> None:
        self.now = wrong

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self.now, name)
        return found


async def test_a_wrong_key_is_reported_once_without_the_key_and_waited_for(
    azurite: Azurite, tables: HttpTables, caplog: pytest.LogCaptureFixture
) -> None:
    await create(azurite, tables)
    wrong = HttpTables.from_connection_string(azurite.connection_string.replace("AccountKey=Eby8", "AccountKey=Abc8"))
    with pytest.raises(Rejected, match="403"):
        wrong.get(FLEETS, "p", "r", timeout=60)
    swapped = Swapped(wrong)
    with LeaseKeeper("fleet", "b", swapped) as keeper:  # type: ignore[arg-type]
        until(lambda: keeper.counts["failed"] >= 2, BUSY, "refusals")
        assert len(logged := errors(caplog)) == 1 and "403" in logged[0] and "Abc8" not in caplog.text
        swapped.now = tables
        until(lambda: len(keeper.owned()) == FLEET.partitions, BUSY, "everything")
    wrong.close()


async def test_a_profile_that_was_made_unsafe_by_hand_ends_the_keeper_with_the_inequality(azurite: Azurite, tables: HttpTables) -> None:
    await create(azurite, tables)
    unsafe, why = Fleet(1, Profile(5, 15, 15)), r"takeover >= validity .* does not hold: 15 < 16.3"
    ThreadRunner(tables, steady, 5).run(takeover.create_fleet(fleet_key("default", "unsafe"), unsafe))
    with LeaseKeeper("unsafe", "a", tables) as keeper, pytest.raises(TocsinError, match=why):
        keeper.wait(BUSY)
