"""Shards over several storage accounts: where they go, how the list grows, and what happens when an account does not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.scheduler import keys
from shared.scheduler.ingest.open_shards import AccountRotation
from shared.scheduler.protocol.moving import target_shard
from shared.scheduler.timings import ACCOUNT_AVOIDED_FOR
from shared.storage import spread_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import EVENTS, LEDGER, SHARDS, SWEEPS, TENANTS
from shared.storage.ports import RowQuery, Upsert
from shared.storage.several.tables import AWAY, AccountTables, SpreadTables
from tests.faults import Faults, Perform, Request
from tests.texts import assert_text

from ..harness import World


class FailingTables(Faults):
    """An account that can be made to fail every call."""

    failure: Exception | None = None

    async def plan(self, _: Request, perform: Perform) -> Any:
        if self.failure is not None:
            self.inner.transactions["failed"] += 1
            raise self.failure
        return await perform()


class Accounts:
    """A world over several accounts, whose list may grow."""

    def __init__(self, count: int) -> None:
        self.world = World()
        self.tables: list[FailingTables] = []
        self.queues = MemoryQueues(self.world.clock)
        self.count = count

    async def open(self, count: int | None = None, fresh: Sequence[int] = ()) -> World:
        while len(self.tables) < (count or self.count):
            self.tables.append(FailingTables(MemoryTables(self.world.clock)))
        self.world.storage = spread_storage(self.tables, self.queues, self.world.clock, fresh)
        await self.world.open()
        return self.world

    def shards(self) -> list[int]:
        """Return how many shards each account holds."""
        return [len(tables._tables.get(EVENTS, {})) for tables in self.tables]


async def test_shards_go_to_all_accounts_in_turn_and_everything_else_stays_at_home() -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    made = [await world.demo.create(delay=f"PT{hours}H") for hours in range(1, 10)]
    assert accounts.shards() == [3, 3, 3]
    assert {event["id"][0] for event in made} == {"0", "1", "2"}
    for event in made:
        assert (await world.demo.event(event["id"]))["state"] == "scheduled"
    assert sorted(event["id"] for event in await world.demo.all("/api/v1/events?limit=2")) == sorted(event["id"] for event in made)
    assert (await world.demo.get("/api/v1/stats")).json()["open"] == 9
    for tables in accounts.tables[1:]:
        assert set(tables._tables) == {EVENTS, SHARDS, SWEEPS} and list(tables._tables[SWEEPS]) == ["storage"]
    await world.close()


async def test_events_of_every_account_fire_and_end_in_the_home_accounts_ledger() -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    made = [await world.demo.create(delay=f"PT{60 * minutes}S") for minutes in range(1, 7)]
    await world.run(400)
    assert [(await world.demo.event(event["id"]))["state"] for event in made] == ["delivered"] * 6
    assert accounts.shards() == [2, 2, 2]
    assert sum(map(len, accounts.tables[0]._tables[LEDGER]["demo"].rows)) > 0
    assert all(not tables._tables[SHARDS] for tables in accounts.tables)
    await world.close()


async def test_a_longer_list_moves_nothing_and_old_events_are_still_found_moved_cancelled_and_fired() -> None:
    accounts = Accounts(1)
    world = await accounts.open()
    old = [(await world.demo.create(delay="PT10M", id=name))["id"] for name in ("a", "b", "c")]
    by_server = (await world.demo.create(delay="PT10M"))["id"]
    await world.close()
    world = await accounts.open(3)
    assert accounts.shards() == [1, 0, 0]
    assert (await world.demo.delete(f"/api/v1/events/{old[0]}")).status == 204
    assert (await world.demo.patch(f"/api/v1/events/{old[1]}", {"delay": "PT20M"})).status == 200
    new = [(await world.demo.create(delay=f"PT{hours}H"))["id"] for hours in (1, 2, 3)]
    assert {event_id[0] for event_id in new} == {"0", "1", "2"}
    # The moved event stays in the account that its first address names.
    assert accounts.shards() == [3, 1, 1]
    await world.run(1300)
    states = [(await world.demo.event(event_id))["state"] for event_id in (*old, by_server)]
    assert states == ["cancelled", "delivered", "delivered", "delivered"]
    await world.close()


async def test_an_account_that_is_being_emptied_takes_no_new_shards_and_serves_its_old_ones() -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    old = [await world.demo.create(delay=f"PT{60 * minutes}S") for minutes in range(5, 8)]
    await world.close()
    world = await accounts.open(fresh=(0, 2))
    for hours in range(1, 7):
        await world.demo.create(delay=f"PT{hours}H")
    assert accounts.shards() == [1 + 3, 1, 1 + 3]
    await world.run(600)
    assert [(await world.demo.event(event["id"]))["state"] for event in old] == ["delivered"] * 3
    await world.close()


async def test_an_account_that_is_away_keeps_neither_new_events_nor_other_shards_waiting() -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    before = [await world.demo.create(delay=f"PT{60 * minutes}S") for minutes in range(1, 7)]
    lost = [event["id"] for event in before if event["id"][0] == "1"]
    accounts.tables[1].failure = Unavailable("the account is away")
    during = [await world.demo.create(delay=f"PT{minutes + 2}H") for minutes in range(6)]
    assert {event["id"][0] for event in during} == {"0", "2"}
    with pytest.raises(Unavailable):  # what the host sees of the shards that cannot be served
        await world.run(400)
    assert {type(problem) for problem in world.problems} == {Unavailable}
    world.problems.clear()
    for event in before:
        answer = await world.demo.get(f"/api/v1/events/{event['id']}")
        if event["id"] in lost:
            assert (answer.status, answer.json()["type"].rpartition("/")[2]) == (503, "storage-unavailable")
        else:
            assert answer.json()["state"] == "delivered"
    # A list or figures without the shards of an account would be wrong without saying so.
    for url in ("/api/v1/events", "/api/v1/stats"):
        assert (await world.demo.get(url)).status == 503
    accounts.tables[1].failure = None
    await world.run(200)
    assert {(await world.demo.event(event_id))["state"] for event_id in lost} == {"delivered"}
    assert (await world.demo.get("/api/v1/stats")).json()["delivered"] == 6
    await world.close()


async def test_a_sweep_counts_and_shows_which_partitions_it_could_not_read(caplog: pytest.LogCaptureFixture) -> None:
    accounts = Accounts(2)
    world = await accounts.open()
    accounts.tables[1].failure = Unavailable("the account is away")
    counts = await world.do(world.app.scheduler.sweeps.dispatch(world.now))
    assert counts["failed"] == counts["unread"] == 16
    assert [record.__dict__["place"] for record in caplog.records if record.__dict__.get("action") == "place_unread"] == ["1"]
    await world.close()


async def test_only_account_that_is_away_fails_the_sweep() -> None:
    world = await World().open()

    async def away(*args: Any, **options: Any) -> Any:
        raise Unavailable("away")

    world.app.scheduler.sweeps._tables = type("Away", (), {"query": staticmethod(away)})()  # type: ignore[assignment]
    with pytest.raises(Unavailable):
        await world.app.scheduler.sweeps.dispatch(world.now)
    await world.close()


async def test_an_id_of_a_place_that_does_not_exist_is_not_found() -> None:
    accounts = Accounts(2)
    world = await accounts.open()
    for place in ("2", "f", "m", "v"):
        assert (await world.demo.get(f"/api/v1/events/{place}{'0' * 15}.000")).status == 404
    await world.close()


async def test_a_pointer_to_an_account_that_is_no_longer_listed_is_an_outage_not_an_empty_place() -> None:
    clock = SettableClock()
    storage = spread_storage([MemoryTables(clock), MemoryTables(clock)], MemoryQueues(clock), clock)
    await storage.ensure()
    with pytest.raises(Unavailable):
        await storage.tables.get(EVENTS, keys.shard_key("demo", "2" + "0" * 15), keys.GATE)


def test_targets_of_moves_and_redrives_inherit_the_place_of_their_source() -> None:
    for place in keys.PLACES:
        source = keys.shard_key("demo", place + "0" * 15)
        for purpose in ("move:e000", "redrive:r"):
            target = target_shard(source, purpose, 1)
            assert keys.place_of(target) == place
            assert keys.index_partition(target)[0] == place


def test_index_partitions_keep_their_numbers_when_the_list_grows() -> None:
    assert keys.index_partitions("0") == list(keys.INDEX_PARTITIONS)
    grown = keys.index_partitions("m012")
    assert grown[:16] == list(keys.INDEX_PARTITIONS) and len(grown) == 64 and grown[-1] == "mf"
    assert [keys.index_number(each) for each in keys.index_partitions(keys.PLACES)] == list(range(17 * 16))


def test_a_rota_leaves_out_what_did_not_answer_until_its_time_is_over_or_nothing_else_is_left() -> None:
    clock = SettableClock()
    rota = AccountRotation("012", clock)
    assert Counter(rota.next() for _ in range(9)) == {"0": 3, "1": 3, "2": 3}
    assert rota.avoid("1") and Counter(rota.next() for _ in range(8)) == {"0": 4, "2": 4}
    assert rota.avoid("0") and not rota.avoid("2")
    assert {rota.next() for _ in range(9)} == {"0", "1", "2"}
    clock._elapsed += ACCOUNT_AVOIDED_FOR
    assert {rota.next() for _ in range(9)} == {"0", "1", "2"} and rota.avoid("0")


async def test_an_account_that_did_not_answer_is_asked_again_by_one_call_only() -> None:
    clock = SettableClock()
    tables = FailingTables(MemoryTables(clock))
    await tables.ensure([TENANTS])
    account = AccountTables(tables, clock, "storage account 1")
    tables.failure = Unavailable("away")
    for _ in range(5):
        with pytest.raises(Unavailable):
            await account.get(TENANTS, "p", "r")
    assert account.transactions["failed"] == 1
    await clock.advance(AWAY)
    with pytest.raises(Unavailable):
        await account.query(RowQuery(TENANTS, "p"))
    assert account.transactions["failed"] == 2
    tables.failure = None
    await clock.advance(AWAY)
    assert await account.get(TENANTS, "p", "r") is None
    tables.failure = OutcomeUnknown("a single lost answer says nothing of the account")
    with pytest.raises(OutcomeUnknown):
        await account.write(TENANTS, "p", [Upsert("r", {})])
    tables.failure = None
    assert await account.get(TENANTS, "p", "r") is None


async def test_transactions_are_counted_by_account() -> None:
    clock = SettableClock()
    storage = spread_storage([MemoryTables(clock), MemoryTables(clock)], MemoryQueues(clock), clock)
    await storage.ensure()
    assert isinstance(storage.tables, SpreadTables)
    await storage.tables.get(EVENTS, keys.shard_key("demo", "1" + "0" * 15), keys.GATE)
    await storage.tables.get(TENANTS, "tenant", "demo")
    await storage.tables.get(TENANTS, "tenant", "acme")
    assert [each["get"] for each in storage.tables.by_account] == [2, 1]
    assert storage.tables.transactions["get"] == 3


@pytest.mark.parametrize("url", ["/api/v1/events", "/api/v1/stats", "/api/v1/load"])
async def test_lists_and_figures_say_which_account_keeps_them_from_being_whole(url: str) -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    await world.demo.create(delay="PT1H")
    for failure in (Unavailable("the table request failed: secret.example"), None):
        # The account is asked, and then known to be away.
        accounts.tables[2].failure = failure or accounts.tables[2].failure
        answer = await world.demo.get(url)
        found = answer.json()
        assert (answer.status, answer.code, found["outcome"]) == (503, "storage-unavailable", "unchanged")
        assert_text("problem.storage-unavailable", found["detail"], account=2)
        assert int(answer.headers["retry-after"]) >= 1
    await world.close()
