"""Servers that speak HTTP: what a beat means, what a claim is refused for, and answers that get lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import OutcomeUnknown
from shared.engine.effects import Write
from shared.leases import rules
from shared.leases.planner_input import read_planner_input
from shared.leases.protocol import http_servers, membership, repair, takeover
from shared.leases.protocol.http_servers import ClaimResult, HeartbeatAccepted, NameOccupied, ServerHeartbeat, ServerRejected
from shared.leases.protocol.membership import BeatApplied, Registered, ServerReport
from shared.leases.protocol.repair import OwnersUnknown
from shared.leases.rows import FLEET, ActiveIntents, HttpServerState, Partition, Server, parse_fleet, partition_key, server_key
from shared.leases.rules import ServerSession
from shared.leases.timings import FENCE_MARGIN
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Delete, Merge, RowQuery

from ..conftest import KEY, Bench

INCARNATIONS = st.sampled_from(["i1", "i2"])
STATES = st.sampled_from(["live", "draining", "dead"])
HTTP = st.builds(HttpServerState, evicted=st.booleans())
SERVERS = st.builds(Server, st.just("a"), STATES, INCARNATIONS, st.integers(1, 5), scans=st.booleans(), kept=st.booleans(), http=HTTP)


@given(st.none() | SERVERS, INCARNATIONS, st.integers(1, 6), st.booleans(), st.booleans())
def test_a_beat_renews_only_its_own_living_incarnation_and_only_upwards(
    server: Server | None, incarnation: str, seq: int, silent: bool, keep: bool
) -> None:
    heard = rules.judge_heartbeat(server, incarnation, seq, silent, keep)
    mine = server is not None and server.incarnation == incarnation
    if server is not None and mine and keep and seq == server.beat and server.state != "dead" and not server.scans:
        # The last heartbeat is repeated. A number that was applied as another heartbeat keeps nothing.
        assert heard == ("again" if server.kept else "stale")
    elif server is not None and mine and (server.state == "dead" or server.scans or server.kept or server.http.evicted):
        assert heard == "fenced"
    elif server is not None and mine:
        assert heard == ("renew" if seq > server.beat else "again" if seq == server.beat else "stale")
    elif seq > 1:
        assert heard == "fenced"
    else:
        free = server is None or server.state == "dead" or server.kept or silent
        assert heard == ("register" if free else "in-use")


@given(
    st.builds(Partition, st.just(3), st.sampled_from(["", "a", "b"]), INCARNATIONS, st.integers(0, 3), generation=st.integers(1, 2)),
    st.none() | SERVERS,
    SERVERS,
    st.integers(-1, 2),
    st.builds(ActiveIntents, st.sets(st.just(3)).map(frozenset), pins=st.sampled_from([(), ((3, "b"),), ((3, "a"),)])),
)
def test_whatever_is_not_refused_was_free_by_the_rule_of_all_servers(
    partition: Partition, owner: Server | None, server: Server, room: int, intents: ActiveIntents
) -> None:
    reason = rules.claim_refusal(partition, owner, server, intents, room)
    if reason is None:
        assert not partition.owner or rules.has_ended(partition.incarnation, owner)
        assert 3 not in intents.offline and room > 0 and server.state != "draining" and (3, "b") not in intents.pins
        assert partition.generation == server.generation
    assert rules.claim_refusal(None, owner, server, intents, room) == "offline"


def register(bench: Bench, name: str = "a", incarnation: str = "i1") -> Server:
    heard = bench.drive(http_servers.beat(KEY, name, ServerHeartbeat(incarnation, 1), 0))
    assert isinstance(heard, HeartbeatAccepted)
    return heard.server


def test_a_first_beat_whose_answers_get_lost_registers_once(bench: Bench) -> None:
    bench.tables.faults.extend(["gone", "lost"])
    before = bench.tables.writes
    server = register(bench)
    assert (server.incarnation, server.beat, server.scans, server.http.terms) == ("i1", 1, False, "5:15")
    assert bench.tables.writes == before + 2


@pytest.mark.parametrize("fault", ["lost", "gone"])
def test_a_beat_whose_answer_is_lost_is_found_applied_or_written_again(bench: Bench, fault: str) -> None:
    register(bench)
    bench.tables.faults.append(fault)
    heard = bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2, load=0.5), 0))
    assert isinstance(heard, HeartbeatAccepted) and (heard.server.beat, heard.server.load) == (2, 0.5)
    assert bench.server("a").beat == 2


@pytest.mark.parametrize("fault", ["lost", "gone"])
def test_a_claim_whose_answer_is_lost_is_claimed_once(bench: Bench, fault: str) -> None:
    register(bench)
    bench.tables.faults.append(fault)
    assert bench.drive(http_servers.claim(KEY, "a", "i1", [1, 0], 7)) == ClaimResult(((1, 1), (0, 1)), ())
    assert bench.server("a").http.held == ((0, 1), (1, 1))
    assert (bench.partition(0).owner, bench.partition(0).incarnation, bench.partition(0).since) == ("a", "i1", 7)


@pytest.mark.parametrize("fault", ["lost", "gone"])
def test_a_release_whose_answer_is_lost_releases_once(bench: Bench, fault: str) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    bench.tables.faults.append(fault)
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 9)) == "released"
    assert (bench.partition(0).owner, bench.partition(0).epoch, bench.server("a").http.held) == ("", 1, ())


def test_answers_that_are_always_lost_are_reported_as_unknown(bench: Bench) -> None:
    register(bench)
    bench.tables.faults.extend(["gone"] * http_servers.TRIES)
    with pytest.raises(OutcomeUnknown):
        bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0))


def test_a_first_beat_under_a_fleet_that_is_closed_is_over(bench: Bench) -> None:
    register(bench)
    run_through(bench.memory.write(FLEETS, KEY, [Merge("fleet", {"closed": True}, ANY)]))
    assert bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0)) == ServerRejected("fenced")
    assert bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0)) == ServerRejected("fenced")
    assert bench.server("a").state == "dead"
    assert bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i2", 1), 0)) == ServerRejected("contended")


def test_a_server_that_is_sure_to_be_seen_stays_under_a_fleet_that_closes(bench: Bench) -> None:
    register(bench)
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0)), HeartbeatAccepted)
    run_through(bench.memory.write(FLEETS, KEY, [Merge("fleet", {"closed": True}, ANY)]))
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 3), 0)), HeartbeatAccepted)


def test_a_namesake_learns_how_long_to_wait(bench: Bench) -> None:
    register(bench)
    assert bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i2", 1), 0)) == NameOccupied(18 + FENCE_MARGIN)


def test_more_than_one_property_holds_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    register(bench)
    monkeypatch.setattr(rules, "MAX_HELD", 1)
    assert bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0)) == ClaimResult(((0, 1),), ((1, "limit"),))


def test_the_longest_list_of_what_a_server_has_fits_into_a_row() -> None:
    held = tuple((9000 + number, 4_000_000_000) for number in range(rules.MAX_HELD))
    text = Server("a", "live", "i1", 1, http=HttpServerState(held)).props()["held"]
    assert isinstance(text, str) and len(text) < 32 * 1024


def library_server(bench: Bench, name: str = "k") -> ServerSession:
    """A server that looks for itself, and has partition 0."""
    session = ServerSession(KEY, name, f"{name}1")
    assert bench.drive(membership.register(session, ServerReport(), None, (), 18.0)) == Registered()
    claims = bench.drive(takeover.scout(session, [0]))
    assert isinstance(bench.drive(membership.beat(session, ServerReport(), "live", claims)), BeatApplied)
    return session


def test_nobody_speaks_over_http_for_a_server_of_the_library(bench: Bench) -> None:
    library_server(bench)
    before = bench.server("k"), bench.partition(0)
    for seq in (1, 2, 99):
        assert bench.drive(http_servers.beat(KEY, "k", ServerHeartbeat("k1", seq), 0)) == ServerRejected("fenced")
    assert bench.drive(http_servers.claim(KEY, "k", "k1", [1], 0)) == ServerRejected("fenced")
    assert bench.drive(http_servers.release(KEY, "k", "k1", 0, 1, 0)) == ServerRejected("fenced")
    assert (bench.server("k"), bench.partition(0)) == before


def test_a_first_beat_that_comes_in_after_its_incarnation_was_replaced_brings_nothing_of_it_back(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    b = register(bench, "b", "b1")
    run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)]))
    register(bench, "a", "i2")
    # Another sees that the incarnation is over, and is about to claim.
    claim = http_servers.claim(KEY, "b", b.incarnation, [0], 0)
    effect = next(claim)
    while not isinstance(effect, Write):
        effect = claim.send(bench.runner.perform(effect))
    run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)]))
    register(bench, "a", "i1")
    assert bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0)) == ClaimResult(((0, 2),), ())
    # Its write comes too late now, and it finds that the partition is taken.
    with pytest.raises(StopIteration) as done:
        while True:
            effect = claim.send(bench.runner.perform(effect))
    assert done.value.value == ClaimResult((), ((0, "owned"),))


def test_a_fleet_takes_so_many_servers_and_forgets_dead_ones_for_new_ones(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_servers, "MAX_SERVERS", 2)
    register(bench, "a"), register(bench, "b")
    assert bench.drive(http_servers.beat(KEY, "c", ServerHeartbeat("c1", 1), 0)) == ServerRejected("full")
    assert bench.drive(http_servers.beat(KEY, "c", ServerHeartbeat("c1", 1), 0, most=1)) == ServerRejected("full")
    # A server that owns the partition keeps it, and comes back under its name.
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0)), HeartbeatAccepted)
    for name in ("a", "b"):
        run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key(name), {"state": "dead"}, ANY)]))
    register(bench, "a", "i2"), register(bench, "c", "c1")
    run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key("c"), {"state": "dead"}, ANY)]))
    register(bench, "d", "d1")
    assert {row.rk for row in run_through(bench.memory.query(RowQuery(FLEETS, KEY, first="s:", end="s;"))).rows} <= {"s:a", "s:c", "s:d"}


def missing(bench: Bench, number: int) -> None:
    run_through(bench.memory.write(FLEETS, KEY, [Delete(partition_key(number), ANY)]))


def refill(bench: Bench) -> int | OwnersUnknown:
    row = run_through(bench.memory.get(FLEETS, KEY, FLEET))
    assert row is not None
    return bench.drive(repair.refill(KEY, parse_fleet(row.props), 1000))


def test_a_missing_row_comes_back_as_its_owners_when_a_server_that_speaks_http_has_it(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    before = bench.partition(0)
    missing(bench, 0), missing(bench, 1)
    assert refill(bench) == 2
    assert bench.partition(0) == replace(before, since=0) and bench.partition(1) == Partition(1, epoch=1000)
    register(bench, "b", "b1")
    assert bench.drive(http_servers.claim(KEY, "b", "b1", [0, 1], 0)) == ClaimResult(((1, 1001),), ((0, "owned"),))
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 0)) == "released"


def test_what_is_released_while_its_row_is_missing_comes_back_free(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0))
    missing(bench, 0)
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 2, 0)) == "stale"
    bench.tables.faults.append("lost")
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 0)) == "released"
    assert bench.server("a").http.held == ((1, 1),)
    assert refill(bench) == 1 and bench.partition(0) == Partition(0, epoch=1000)


def test_a_missing_row_stays_missing_while_a_server_of_the_library_may_still_serve_it(bench: Bench) -> None:
    session = library_server(bench)
    missing(bench, 0)
    assert refill(bench) == OwnersUnknown((0,), ("k",))
    assert bench.drive(membership.leave(session)) == "left"
    assert refill(bench) == 1 and bench.partition(0).epoch == 1000


def test_an_answer_that_is_lost_while_rows_come_back_does_no_harm(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    missing(bench, 0), missing(bench, 1)
    bench.tables.faults.extend(["lost", "gone", "lost"])
    refill(bench)
    assert (bench.partition(0).owner, bench.partition(1).owner) == ("a", "")


def test_a_registration_is_repeated_under_its_incarnation_and_another_incarnation_waits(bench: Bench) -> None:
    server = register(bench)
    assert bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 1), 0)) == HeartbeatAccepted(server)
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i2", 1), 0)), NameOccupied)


def test_a_server_that_released_everything_keeps_its_name_in_use(bench: Bench) -> None:
    register(bench), register(bench, "b", "b1")
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 0)) == "released"
    assert bench.drive(http_servers.claim(KEY, "b", "b1", [0], 0)) == ClaimResult(((0, 2),), ())
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i2", 1), 0)), NameOccupied)


def test_an_order_to_release_stays_until_the_release_is_applied(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0))
    # The plan that wanted 0 elsewhere is over: a is alone. But a may have stopped acting on 0, and its release may be lost.
    bench.drive(takeover.write_order(KEY, "a", [], [0]))
    facts = bench.drive(read_planner_input(KEY, 0))
    assert facts is not None
    assert facts.orders(facts.plan(1000), "a") == ([0], [0])
    assert rules.pending_releases(bench.server("a")) == (0,)
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 0)) == "released"
    facts = bench.drive(read_planner_input(KEY, 0))
    assert facts is not None
    assert facts.orders(facts.plan(1000), "a") == ([0], [])


def test_a_partition_may_be_assigned_before_its_owner_has_released_it_and_is_refused_as_owned_until_then(bench: Bench) -> None:
    register(bench), register(bench, "b", "b1")
    bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0))
    facts = bench.drive(read_planner_input(KEY, 0))
    assert facts is not None
    take, _ = facts.orders(found := facts.plan(1000), "b")
    _, drop = facts.orders(found, "a")
    [number] = take
    assert drop == [number]
    assert bench.drive(http_servers.claim(KEY, "b", "b1", take, 0)) == ClaimResult((), ((number, "owned"),))
    bench.drive(http_servers.release(KEY, "a", "i1", number, 1, 0))
    assert bench.drive(http_servers.claim(KEY, "b", "b1", take, 0)) == ClaimResult(((number, 2),), ())


def keep(bench: Bench, seq: int = 2, name: str = "a", incarnation: str = "i1") -> object:
    return bench.drive(http_servers.beat(KEY, name, ServerHeartbeat(incarnation, seq, keep=True), 0))


@pytest.mark.parametrize("fault", ["", "lost", "gone"])
def test_a_server_that_keeps_its_partitions_gets_them_again_in_its_next_incarnation(bench: Bench, fault: str) -> None:
    register(bench), register(bench, "b", "b1")
    bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0))
    bench.tables.faults.append(fault)
    assert isinstance(keep(bench), HeartbeatAccepted)
    assert (bench.server("a").kept, bench.server("a").beat) == (True, 2)
    assert bench.drive(http_servers.claim(KEY, "b", "b1", [0, 1], 0)) == ClaimResult((), ((0, "owned"), (1, "owned")))
    assert register(bench, "a", "i2").take == (0, 1)
    facts = bench.drive(read_planner_input(KEY, 0))
    assert facts is not None and not facts.plan(0).moves
    assert bench.drive(http_servers.claim(KEY, "a", "i2", [0, 1], 0)) == ClaimResult(((0, 2), (1, 2)), ())
    assert not bench.server("a").kept and bench.server("a").take == ()


def test_a_kept_incarnation_is_over_and_only_its_last_heartbeat_is_answered_again(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    kept = keep(bench)
    assert keep(bench) == kept
    for seq in (1, 2, 3):
        assert bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", seq), 0)) == ServerRejected("fenced")
    assert keep(bench, 3) == ServerRejected("fenced")
    assert bench.drive(http_servers.claim(KEY, "a", "i1", [1], 0)) == ServerRejected("fenced")
    assert bench.drive(http_servers.release(KEY, "a", "i1", 0, 1, 0)) == ServerRejected("fenced")
    register(bench, "a", "i2")
    assert keep(bench) == ServerRejected("fenced") and not bench.server("a").kept


def test_a_number_that_was_applied_as_another_heartbeat_keeps_nothing(bench: Bench) -> None:
    register(bench)
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0)), HeartbeatAccepted)
    assert keep(bench, 2) == ServerRejected("stale") and not bench.server("a").kept
    assert keep(bench, 1) == ServerRejected("stale")
    assert isinstance(keep(bench, 3), HeartbeatAccepted)


def test_a_server_that_comes_back_is_not_ordered_what_it_was_to_release_nor_what_has_other_keys(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0, 1], 0))
    bench.drive(takeover.write_order(KEY, "a", [], [1]))
    keep(bench)
    assert register(bench, "a", "i2").take == (0,)
    bench.drive(http_servers.claim(KEY, "a", "i2", [0], 0))
    keep(bench, 2, incarnation="i2")
    run_through(bench.memory.write(FLEETS, KEY, [Merge(FLEET, {"generation": 2}, ANY)]))
    assert register(bench, "a", "i3").take == ()


def test_a_kept_server_that_was_fenced_gets_no_orders_for_what_others_may_have(bench: Bench) -> None:
    register(bench)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    keep(bench)
    run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)]))
    assert keep(bench) == ServerRejected("fenced")
    assert register(bench, "a", "i2").take == ()


def test_a_server_that_speaks_http_comes_back_for_what_one_of_the_library_has_kept(bench: Bench) -> None:
    session = library_server(bench, "a")
    assert bench.drive(membership.leave(session, keep=True)) == "left"
    assert register(bench, "a", "i2").take == (0,)
    assert bench.drive(http_servers.claim(KEY, "a", "i2", [0], 0)) == ClaimResult(((0, 2),), ())
    keep(bench, 2, incarnation="i2")
    back = ServerSession(KEY, "a", "a3")
    assert bench.drive(membership.register(back, ServerReport(), None, (), 18.0)) == Registered() and back.resumed
