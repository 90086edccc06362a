"""The keeper on real threads, with durations of fractions of a second, over the twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared import leases
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node import keeper as keeper_module
from shared.leases.node.keeper import FleetMissing, LeaseKeeper, NameInUse
from shared.leases.profiles import Profile
from shared.leases.protocol import takeover
from shared.leases.rows import Fleet, Intent, server_key
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Insert, Merge, WriteRefused

from ..conftest import KEY, quick_fleet, until
from .keepers import ALL, PARTITIONS, Servers


def test_one_server_gets_everything_and_two_share(servers: Servers) -> None:
    a = servers.start("a")
    assert a.keeper.wait(60)
    until(lambda: a.has() == ALL, "everything")
    b = servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")
    assert a.has() | b.has() == ALL
    assert all(b.keeper.owns(partition) and b.keeper.epoch(partition) == 2 for partition in b.has())
    assert not a.keeper.owns(next(iter(b.has()))) and a.keeper.epoch(PARTITIONS + 1) is None
    until(lambda: {p for what, p, _ in b.callbacks if what == "gained"} == b.has(), "callbacks")
    assert a.reasons() == {"handed-off"}


def test_a_successor_starts_when_the_callback_has_returned(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    a.may_stop.clear()
    b = servers.start("b")
    until(lambda: len(a.has()) == PARTITIONS // 2, "no longer served")
    assert b.has() == set()
    a.may_stop.set()
    until(lambda: len(b.has()) == PARTITIONS // 2, "claimed")


def test_a_callback_that_does_not_return_holds_a_hand_off_up_for_its_deadline_only(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    a.may_stop.clear()
    b = servers.start("b")
    until(lambda: len(b.has()) == PARTITIONS // 2, "claimed all the same")
    assert a.reasons() == set()


def test_a_server_that_stops_hands_everything_over(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")
    assert a.keeper.stop(20)
    assert (a.has(), a.reasons()) == (set(), {"handed-off"})
    until(lambda: b.has() == ALL, "taken over")


def test_a_drained_server_gives_everything_up_and_comes_back(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")
    a.keeper.drain()
    until(lambda: b.has() == ALL and not a.has(), "drained")
    a.keeper.undrain()
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares again")


def test_an_outage_ends_ownership_by_itself_after_a_warning_and_it_comes_back(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    until(lambda: {p for what, p, _ in a.callbacks if what == "gained"} == ALL, "callbacks")
    servers.tables.down = True
    until(lambda: not a.has(), "expired")
    until(lambda: a.reasons() == {"expired"}, "told so")
    kinds = [what for what, _, _ in a.callbacks]
    assert "danger" in kinds[: kinds.index("lost")]
    servers.tables.down = False
    until(lambda: a.has() == ALL, "back")
    assert set(a.keeper.owned().values()) == {1}


def test_lost_answers_cost_nothing(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    beats = a.keeper.counts["beats"]
    servers.tables.faults.extend(["lost", "gone", "lost"])
    until(lambda: a.keeper.counts["beats"] > beats + 6, "beats")
    assert (a.has(), a.reasons()) == (ALL, set())


def test_a_fenced_server_loses_everything_and_joins_again(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    run_through(servers.tables.tables.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)]))
    until(lambda: "fenced" in a.reasons(), "told so")
    until(lambda: a.has() == ALL and set(a.keeper.owned().values()) == {2}, "back under the next epoch")


def test_a_living_namesake_is_refused(servers: Servers) -> None:
    a = servers.start("a")
    assert a.keeper.wait(60)
    twin = servers.start("a")
    with pytest.raises(NameInUse):
        twin.keeper.wait(60)
    until(lambda: a.has() == ALL, "the first goes on")


def test_a_file_that_is_locked_refuses_a_namesake_at_once(servers: Servers, tmp_path: Path) -> None:
    a = servers.start("a", folder=tmp_path)
    assert a.keeper.wait(60)
    with pytest.raises(NameInUse):
        servers.start("a", folder=tmp_path).keeper.wait(60)


def test_operators_wishes_are_carried_out(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")

    def wish(intent: Intent, changes: int) -> None:
        ops = (Insert(intent.key, intent.props()), Merge("fleet", {"changes": changes}, ANY))
        run_through(servers.tables.tables.write(FLEETS, KEY, ops))

    wish(Intent("offline", 3), 1)
    until(lambda: a.has() == ALL - {3}, "offline")
    wish(Intent("bump", 4, epoch=1), 2)
    until(lambda: a.keeper.epoch(4) == 2, "reloaded")


def test_published_load_and_capacity_reach_the_planner(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    a.keeper.publish(load=7.5, capacity=3)
    until(
        lambda: (row := servers.tables.get(FLEETS, KEY, server_key("a"), timeout=1)) is not None and row.props["load"] == 7.5, "published"
    )
    servers.start("b")
    until(lambda: len(a.has()) == 3, "bounded")


async def test_a_keeper_is_a_context_in_a_coroutine_too(servers: Servers) -> None:
    async with LeaseKeeper("fleet", "c", servers.tables) as keeper:
        assert keeper.wait(60)
        until(lambda: set(keeper.owned()) == ALL, "everything")
    assert keeper.owned() == {}


def test_a_fleet_that_is_not_there_or_unsafe_ends_the_keeper(servers: Servers) -> None:
    with LeaseKeeper("nofleet", "a", servers.tables) as keeper, pytest.raises(FleetMissing, match="does not exist"):
        keeper.wait(60)
    unsafe = Fleet(1, Profile(0.2, 0.6, 0.7))
    assert ThreadRunner(servers.tables, lambda: 0.0, 1).run(takeover.create_fleet("default:unsafe", unsafe))
    with LeaseKeeper("unsafe", "a", servers.tables) as keeper, pytest.raises(FleetMissing, match="takeover >="):
        keeper.wait(60)


def test_a_keeper_can_be_stopped_while_storage_is_away() -> None:
    tables = quick_fleet(PARTITIONS)
    tables.down = True
    keeper = LeaseKeeper("fleet", "a", tables).start()
    assert keeper.stop(20)
    assert not keeper.wait(60)


def test_a_keeper_stops_in_bounded_time_when_storage_goes_away(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    servers.tables.down = True
    assert a.keeper.stop(20)
    assert a.has() == set()


def test_asking_takes_no_lock(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    with a.keeper._keeper_state._lock:
        assert a.keeper.owns(0)
    monkeypatch.setattr(keeper_module, "steady", lambda: float("inf"))
    assert not a.keeper.owns(0)


def test_what_nodes_use_is_found_where_the_package_says() -> None:
    assert leases.LeaseKeeper is LeaseKeeper
    assert leases.ANY == "*"
    assert leases.Refused is WriteRefused
    assert all(getattr(leases, name).__name__ == name for name in leases.__all__ if name not in {"ANY", "Refused"})
    with pytest.raises(AttributeError):
        _ = leases.Nothing


def test_a_name_that_cannot_be_is_refused_at_once(servers: Servers) -> None:
    with pytest.raises(ValueError, match="server's name"):
        LeaseKeeper("fleet", "a/b", servers.tables)
    with pytest.raises(RuntimeError, match="once"):
        servers.start("a").keeper.start()


def test_a_keeper_that_keeps_its_partitions_has_them_again_without_a_folder(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    assert a.keeper.stop(60, keep=True) and a.has() == set()
    again = servers.start("a")
    until(lambda: again.has() == ALL, "everything again")
    assert again.keeper.counts["fenced"] == 0
