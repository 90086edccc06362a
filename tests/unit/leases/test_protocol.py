"""The protocol, step by step on the twin: the production generators under lost answers, races and take-overs."""

from __future__ import annotations

import pytest

from shared.core.errors import StorageError
from shared.leases import rules, scan_rules
from shared.leases.profiles import PROFILES, Profile
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import (
    AwaitingTakeover,
    BeatApplied,
    BeatNotApplied,
    IncarnationFenced,
    LiveNamesake,
    Registered,
    ServerReport,
)
from shared.leases.rows import Fleet
from shared.leases.rules import HandOff, ServerObservation, ServerSession

from .conftest import KEY, Bench, T

V = PROFILES["default"].validity


def join(bench: Bench, name: str, incarnation: str = "") -> ServerSession:
    session = ServerSession(KEY, name, incarnation or f"{name}1")
    assert bench.drive(membership.register(session, ServerReport(), None, (), T)) == Registered()
    return session


def beat(bench: Bench, session: ServerSession, **options: object) -> object:
    return bench.drive(membership.beat(session, ServerReport(load=0.5), "live", **options))  # type: ignore[arg-type]


def claim(bench: Bench, session: ServerSession, *partitions: int) -> object:
    return beat(bench, session, claims=bench.drive(takeover.scout(session, partitions)))


def expires(session: ServerSession) -> float:
    return rules.valid_until(session, PROFILES["default"])


def silence(bench: Bench) -> dict[str, ServerObservation]:
    sights: dict[str, ServerObservation] = {}
    bench.drive(takeover.observe_servers(KEY, sights))
    bench.moment += T
    return sights


def test_a_claim_rides_on_a_beat_and_raises_the_epoch(bench: Bench) -> None:
    a = join(bench, "a")
    bench.moment = 2
    done = claim(bench, a, 0, 1)
    assert isinstance(done, BeatApplied)
    assert {number: held.epoch for number, held in a.held.items()} == {0: 1, 1: 1}
    assert (bench.partition(0).owner, bench.partition(0).incarnation, bench.partition(0).epoch) == ("a", "a1", 1)
    assert (expires(a), bench.server("a").beat) == (2 + V, 2)


def test_validity_counts_from_the_send(bench: Bench) -> None:
    a = join(bench, "a")
    steps = membership.beat(a, ServerReport(), "live")
    effect = next(steps)
    bench.moment = 3
    effect = steps.send(bench.runner.perform(effect))
    answer = bench.runner.perform(effect)
    bench.moment = 9
    with pytest.raises(StopIteration):
        steps.send(answer)
    assert expires(a) == 3 + V


def test_what_is_owned_is_not_claimed(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    claim(bench, a, 0)
    assert bench.drive(takeover.scout(b, [0])) == []
    assert bench.drive(takeover.scout(a, [0])) == []


def test_a_released_partition_is_claimed_at_once_under_the_next_epoch(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    claim(bench, a, 0)
    a.leaving[0] = a.held.pop(0)
    assert beat(bench, a, releases=[0]) == BeatApplied((), (0,))
    claim(bench, b, 0)
    assert b.held[0].epoch == 2


def test_the_slower_of_two_claims_is_refused_and_keeps_its_beat(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    found = bench.drive(takeover.scout(b, [0, 1]))
    claim(bench, a, 1)
    assert beat(bench, b, claims=found) == BeatNotApplied(refused=(1,))
    assert beat(bench, b, claims=found[:1]) == BeatApplied((found[0],), ())


def test_only_a_server_silent_for_t_is_fenced(bench: Bench) -> None:
    a = join(bench, "a")
    sights = silence(bench)
    bench.moment -= 0.1
    assert bench.drive(takeover.fence(KEY, "a", sights, T)) == "lives"
    beat(bench, a)
    bench.moment += 0.1
    assert bench.drive(takeover.fence(KEY, "a", sights, T)) == "lives"
    bench.moment += T
    assert bench.drive(takeover.fence(KEY, "a", sights, T)) == "fenced"
    assert bench.server("a").state == "dead"
    assert bench.drive(takeover.fence(KEY, "a", sights, T)) == "gone"


def test_a_fenced_incarnation_never_renews_and_its_partitions_are_free(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    claim(bench, a, 0)
    sights = silence(bench)
    assert bench.drive(takeover.fence(KEY, "a", sights, T)) == "fenced"
    before = expires(a)
    assert beat(bench, a) == IncarnationFenced()
    assert beat(bench, a) == IncarnationFenced()
    assert (a.fenced, expires(a) <= before) == (True, True)
    claim(bench, b, 0)
    assert b.held[0].epoch == 2


def test_a_lost_answer_is_adopted_with_the_deadline_of_its_send(bench: Bench) -> None:
    a = join(bench, "a")
    bench.moment = 4
    bench.tables.faults.extend(["lost"])
    assert beat(bench, a) == BeatNotApplied(told=False)
    bench.moment = 9
    assert expires(a) == 4 + V


def test_an_own_write_found_later_is_dated_by_its_own_send_not_by_a_later_try(bench: Bench) -> None:
    a = join(bench, "a")
    bench.moment = 4
    bench.tables.faults.extend(["lost"])
    steps = membership.beat(a, ServerReport(), "live")
    effect = next(steps)
    effect = steps.send(bench.runner.perform(effect))
    steps.send(bench.runner.perform(effect))
    steps.close()
    bench.moment = 9
    assert beat(bench, a) == BeatNotApplied(told=False)
    assert expires(a) == 4 + V


def test_a_lost_claim_that_was_applied_is_found(bench: Bench) -> None:
    a = join(bench, "a")
    bench.tables.faults.extend(["lost"])
    assert claim(bench, a, 0) == BeatNotApplied(told=False)
    assert a.held[0].epoch == 1
    a.leaving[0] = a.held.pop(0)
    assert beat(bench, a, releases=[0]) == BeatApplied((), (0,))


def test_a_lost_claim_that_was_not_applied_is_not_held(bench: Bench) -> None:
    a = join(bench, "a")
    bench.tables.faults.extend(["gone"])
    claim(bench, a, 0)
    assert beat(bench, a) == BeatApplied()
    assert (a.held, a.open) == ({}, {})


@pytest.mark.parametrize("fault", ["lost", "gone"])
def test_a_release_whose_answer_is_lost_is_made_once(bench: Bench, fault: str) -> None:
    a = join(bench, "a")
    claim(bench, a, 0)
    a.leaving[0] = a.held.pop(0)
    bench.tables.faults.extend([fault])
    beat(bench, a, releases=[0])
    if a.leaving:
        beat(bench, a, releases=[0])
    assert (a.leaving, bench.partition(0).owner, bench.partition(0).epoch) == ({}, "", 1)


def test_a_request_never_sent_changes_nothing(bench: Bench) -> None:
    a = join(bench, "a")
    bench.tables.faults.extend(["away"])
    with pytest.raises(StorageError):
        beat(bench, a)
    bench.moment = 1
    assert beat(bench, a) == BeatApplied()
    assert expires(a) == 1 + V


def test_orders_refuse_the_next_beat_which_reads_them(bench: Bench) -> None:
    a = join(bench, "a")
    claim(bench, a, 0)
    assert bench.drive(takeover.write_order(KEY, "a", [1], [0]))
    assert beat(bench, a) == BeatNotApplied(told=True)
    assert (a.take, a.drop) == ((1,), (0,))
    claim(bench, a, 1)
    a.leaving[0] = a.held.pop(0)
    beat(bench, a, releases=[0])
    assert (bench.server("a").take, bench.server("a").drop) == ((), ())


def test_a_dead_server_gets_no_orders(bench: Bench) -> None:
    a = join(bench, "a")
    assert bench.drive(membership.leave(a)) == "left"
    assert not bench.drive(takeover.write_order(KEY, "a", [1], []))
    assert not bench.drive(takeover.write_order(KEY, "nobody", [1], []))


def test_a_namesake_waits_for_t_unless_the_first_is_proven_gone(bench: Bench) -> None:
    join(bench, "a", "a1")
    second = ServerSession(KEY, "a", "a2")
    waiting = bench.drive(membership.register(second, ServerReport(), None, (), T))
    assert isinstance(waiting, AwaitingTakeover)
    assert bench.server("a").incarnation == "a1"
    bench.moment = T
    assert bench.drive(membership.register(second, ServerReport(), waiting.sight, (), T)) == Registered()
    third = ServerSession(KEY, "a", "a3")
    assert isinstance(bench.drive(membership.register(third, ServerReport(), None, ("a1",), T)), AwaitingTakeover)
    assert bench.drive(membership.register(third, ServerReport(), None, ("a2",), T)) == Registered()


def test_a_living_namesake_is_recognised(bench: Bench) -> None:
    first = join(bench, "a", "a1")
    second = ServerSession(KEY, "a", "a2")
    waiting = bench.drive(membership.register(second, ServerReport(), None, (), T))
    assert isinstance(waiting, AwaitingTakeover)
    beat(bench, first)
    assert bench.drive(membership.register(second, ServerReport(), waiting.sight, (), T)) == LiveNamesake()


def test_a_registration_whose_answer_was_lost_is_found(bench: Bench) -> None:
    bench.moment = 5
    bench.tables.faults.extend(["lost"])
    a = ServerSession(KEY, "a", "a1")
    assert bench.drive(membership.register(a, ServerReport(), None, (), T)) is None
    bench.moment = 8
    assert bench.drive(membership.register(a, ServerReport(), None, (), T)) == Registered()
    assert expires(a) == 5 + V


def test_partitions_of_a_former_incarnation_are_free(bench: Bench) -> None:
    first, b = join(bench, "a", "a1"), join(bench, "b")
    claim(bench, first, 0)
    second = ServerSession(KEY, "a", "a2")
    bench.drive(membership.register(second, ServerReport(), None, ("a1",), T))
    assert [found.partition for found in bench.drive(takeover.scout(second, [0]))] == [0]
    assert [found.partition for found in bench.drive(takeover.scout(b, [0]))] == [0]
    assert beat(bench, first) == IncarnationFenced()


def test_a_server_that_leaves_is_dead_at_once(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    claim(bench, a, 0)
    bench.tables.faults.extend(["lost"])
    assert bench.drive(membership.leave(a)) == "again"
    assert bench.drive(membership.leave(a)) == "fenced"
    assert claim(bench, b, 0) and b.held[0].epoch == 2


def test_a_fleet_is_created_once_with_all_its_rows() -> None:
    bench = Bench(partitions=250)
    assert not bench.drive(takeover.create_fleet(KEY, Fleet(3)))
    assert bench.partition(249).epoch == 0


def test_a_creation_that_was_cut_off_is_finished_by_the_next() -> None:
    bench = Bench(partitions=1)
    bench.tables.faults.extend(["lost", "gone", "lost", "", "lost"])
    assert bench.drive(takeover.create_fleet("t:other", Fleet(150)))


# -- decisions


def test_under_pressure_scans_go_first_then_balancing_then_claims() -> None:
    assert [sorted(scan_rules.duties_to_skip(failures)) for failures in range(5)] == [
        [],
        ["scan"],
        ["balance", "scan"],
        ["balance", "claim", "scan"],
        ["balance", "claim", "scan"],
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64])
def test_looks_at_the_fleet_cost_the_same_whatever_its_size(count: int) -> None:
    profile = Profile(5, 15, 18)
    live = [f"s{number:02d}" for number in range(count)]
    looks = sum(1 / scan_rules.scan_interval(name, live, profile) for name in live)
    assert looks * profile.beat <= scan_rules.SCANNERS + 1 + 1e-9


def test_a_hand_off_ends_when_the_user_has_stopped_or_its_time_is_up() -> None:
    hand_offs = {3: HandOff(0, 10), 1: HandOff(0, 10, stopped=True), 2: HandOff(0, 4)}
    assert rules.releasable(hand_offs, 3) == [1]
    assert rules.releasable(hand_offs, 4) == [1, 2]
    assert rules.releasable(hand_offs, 10) == [1, 2, 3]
