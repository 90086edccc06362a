"""The keeper's loops on virtual time: what they do, and when, to the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.engine.effects import Get, Write
from shared.engine.thread_runner import ThreadRunner
from shared.leases.node.scan_loop import PLAN_ANEW
from shared.leases.profiles import PROFILES, Profile
from shared.leases.protocol import takeover
from shared.leases.rows import FLEET, Fleet, Intent, MoveLimits, Server, fleet_key, parse_server, server_key
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Merge, Upsert
from tests.simulation.leases.node import Application, Node
from tests.simulation.leases.watch import Watch
from tests.simulation.leases.world import Host, World

KEY = fleet_key("default", "fleet")
PROFILE = PROFILES["default"]
H, V, T = PROFILE.beat, PROFILE.validity, PROFILE.takeover


class FleetOf:
    """Servers in a world where nothing goes wrong by itself; two owners at once, or a falling epoch, end a test."""

    def __init__(self, partitions: int = 4) -> None:
        self.world = World("loops")
        self.runner = ThreadRunner(MemoryBlockingTables(self.world.store), self.world.time.monotonic, 1.0)
        assert self.runner.run(takeover.create_fleet(KEY, Fleet(partitions, limits=MoveLimits(drain=10.0))))
        self.watch = Watch(self.world)
        self.partitions = partitions
        self.nodes: list[Node] = []

    @property
    def now(self) -> float:
        return self.world.time.seconds

    def start(self, name: str, **options: Any) -> Node:
        host = Host(self.world, name)
        node = Node(self.world, KEY, name, host, PROFILE, self.watch.seen, **options)
        self.nodes.append(node)
        node.start()
        return node

    def has(self, node: Node) -> set[int]:
        return {number for number in range(self.partitions) if node.owns(number)}

    def until(self, seconds: float, what: Callable[[], object]) -> None:
        assert self.world.run(self.now + seconds, lambda: bool(what()), every=0.01), f"not within {seconds} s"

    def shared(self, *names: str) -> list[Node]:
        """Start these, and wait for equal shares."""
        nodes = [self.start(name) for name in names]
        self.until(12 * H, lambda: all(len(self.has(node)) == self.partitions // len(names) for node in nodes))
        self.world.run(self.now + 2 * H)
        return nodes

    def write(self, *ops: Any) -> None:
        run_through(self.world.store.write(FLEETS, KEY, ops))

    def server(self, name: str) -> Server:
        row = run_through(self.world.store.get(FLEETS, KEY, server_key(name)))
        assert row is not None
        return parse_server(row)


@pytest.fixture
def fleet() -> FleetOf:
    return FleetOf()


def test_a_server_that_must_exit_hands_over_leaves_and_reports_it(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    had = fleet.has(a)
    fleet.write(Merge(server_key("a"), {"tell": "exit"}, ANY))
    fleet.until(6 * H, lambda: a.exited)
    assert a.ended is True and fleet.server("a").state == "dead"
    assert not a.serving
    fleet.until(H, lambda: fleet.has(b) >= had)
    assert max(gap for number, gap, _ in fleet.watch.gaps if number in had) < 1


def test_a_server_that_stops_serves_until_its_successors_wait(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    had, known = fleet.has(a), len(fleet.watch.gaps)
    a.keeper_state.stop()
    fleet.until(6 * H, lambda: a.ended)
    fleet.until(H, lambda: fleet.has(b) == set(range(4)))
    gaps = {number: gap for number, gap, _ in fleet.watch.gaps[known:]}
    assert gaps.keys() == had and max(gaps.values()) < 1
    assert not a.exited


def test_what_is_handed_over_is_claimed_at_once_however_many_may_be_claimed_in_a_cycle() -> None:
    fleet = FleetOf(40)
    _, b = fleet.shared("a", "b")
    had, known = fleet.has(b), len(fleet.watch.gaps)
    assert len(had) == 20 > MoveLimits().claims_per_cycle
    b.keeper_state.stop()
    fleet.until(6 * H, lambda: len(fleet.has(fleet.nodes[0])) == 40)
    assert max(gap for number, gap, _ in fleet.watch.gaps[known:] if number in had) < 2


def test_a_server_that_is_alone_stops_without_waiting(fleet: FleetOf) -> None:
    (a,) = fleet.shared("a")
    a.keeper_state.stop()
    fleet.until(1, lambda: a.ended)


def test_a_dropped_partition_goes_to_another_server_and_stays_there(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    number = min(fleet.has(a))
    a.keeper_state.drop(number)
    fleet.until(4 * H, lambda: b.owns(number))
    fleet.world.run(fleet.now + 8 * H)
    assert b.owns(number) and len(fleet.has(a)) == len(fleet.has(b)) == 2


def test_a_dropped_partition_comes_back_when_there_is_no_other_server(fleet: FleetOf) -> None:
    (a,) = fleet.shared("a")
    a.keeper_state.drop(0)
    fleet.until(1, lambda: not a.owns(0))
    fleet.until(3 * H, lambda: a.view.epochs.get(0) == 2)


def test_limits_are_read_again_when_operators_change_them_and_the_profile_is_not(fleet: FleetOf) -> None:
    (a,) = fleet.shared("a")
    changed = Fleet(4, Profile(1, 3, 9), MoveLimits(drain=2.0, claims_per_cycle=3), changes=1)
    fleet.write(Upsert(FLEET, changed.props()))
    fleet.until(2 * H, lambda: a.keeper_state.fleet.limits == changed.limits)
    assert a.keeper_state.fleet.profile == PROFILE


def test_a_closed_fleet_is_not_joined_until_it_is_open_and_then_under_its_new_profile(fleet: FleetOf) -> None:
    fleet.write(Merge(FLEET, {"closed": True}, ANY))
    a = fleet.start("a")
    fleet.world.run(4 * H)
    assert run_through(fleet.world.store.get(FLEETS, KEY, server_key("a"))) is None
    fleet.write(Upsert(FLEET, Fleet(4, PROFILES["fast"], MoveLimits(drain=4.0)).props()))
    fleet.until(2 * H, lambda: len(fleet.has(a)) == 4)
    assert a.keeper_state.fleet.profile == PROFILES["fast"]


def test_a_server_that_joins_while_its_fleet_is_closed_leaves_again(fleet: FleetOf) -> None:
    a = fleet.start("a")
    fleet.until(2 * H, lambda: run_through(fleet.world.store.get(FLEETS, KEY, server_key("a"))))
    fleet.write(Merge(FLEET, {"closed": True}, ANY))
    fleet.until(H, lambda: fleet.server("a").state == "dead")
    fleet.world.run(fleet.now + 2 * H)
    assert not a.view.epochs and a.ended is None
    fleet.write(Merge(FLEET, {"closed": False}, ANY))
    fleet.until(3 * H, lambda: len(fleet.has(a)) == 4)


def test_orders_do_not_keep_a_crashed_server_alive(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    had, began = fleet.has(a), fleet.now
    a.crash()
    for number in range(1, 6):
        # Another program writes into its row every three seconds.
        fleet.world.at(began + 3 * number, fleet.write, Merge(server_key("a"), {"drop": str(number % 4)}, ANY))
    fleet.until(T + H + 2, lambda: fleet.has(b) >= had)


def test_orders_that_came_with_a_lost_answer_are_obeyed(fleet: FleetOf) -> None:
    a, _ = fleet.shared("a", "b")
    number, key, lost = min(fleet.has(a)), server_key("a"), [False]

    def loses(host: Host, effect: Any) -> str:
        if host is not a.host or lost[0] or not isinstance(effect, Write):
            return ""
        lost[0] = True
        # Right after the beat, so that its own beat is what the server finds in its row.
        fleet.world.at(fleet.now + 1, fleet.write, Merge(key, {"drop": str(number)}, ANY))
        return "answer"

    fleet.world.loses = loses
    fleet.until(4 * H, lambda: not a.owns(number))
    assert lost[0]


def test_orders_that_came_with_a_registrations_lost_answer_are_obeyed(fleet: FleetOf) -> None:
    key, lost = server_key("a"), [False]

    def loses(host: Host, effect: Any) -> str:
        if lost[0] or not isinstance(effect, Write):
            return ""
        lost[0] = True
        fleet.world.at(fleet.now + 1, fleet.write, Merge(key, {"take": "2"}, ANY))
        return "answer"

    fleet.world.loses = loses
    a = fleet.start("a")
    fleet.until(4 * H, lambda: a.keeper_state.session is not None)
    assert lost[0] and a.keeper_state.wanted_partitions() == [2]


def test_claims_that_turn_out_applied_are_served_though_reading_them_failed(fleet: FleetOf) -> None:
    lost: list[str] = []

    def loses(host: Host, effect: Any) -> str:
        if isinstance(effect, Write) and len(effect.ops) > 1 and not lost:
            lost.append("answer")
        elif isinstance(effect, Get) and effect.rk.startswith("p:") and len(lost) == 1:
            lost.append("request")
        else:
            return ""
        return lost[-1]

    fleet.world.loses = loses
    a = fleet.start("a")
    fleet.until(5 * H, lambda: len(fleet.has(a)) == 4)
    assert lost == ["answer", "request"]


def test_an_operators_drain_is_carried_out_and_forgotten(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    drain = Intent("drain", server="a", expires=fleet.world.time.now() + 60_000)
    fleet.write(Upsert(drain.key, drain.props()), Merge(FLEET, {"changes": 1}, ANY))
    fleet.until(5 * H, lambda: fleet.has(b) == set(range(4)))
    fleet.until(60 + (PLAN_ANEW + 4) * H, lambda: len(fleet.has(a)) == 2)


def test_a_callback_that_returns_late_says_nothing_about_the_next_hand_off(fleet: FleetOf) -> None:
    slow = [30.0]
    a = fleet.start("a", application=Application(calls=lambda: slow[0]))
    fleet.until(4 * H, lambda: len(fleet.has(a)) == 4)
    a.keeper_state.drop(0)
    fleet.until(4 * H + 10, lambda: a.view.epochs.get(0) == 2)
    slow[0] = 0.01
    fleet.world.run(fleet.now + 60)
    assert a.owns(0) and a.view.epochs[0] == 2


def test_a_server_that_waits_for_its_own_silence_has_seen_that_of_others_by_then(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    a.crash()
    b.crash()
    again = fleet.start("a")
    fleet.until(T + 2 * H + 2, lambda: len(fleet.has(again)) == 4)


def test_a_server_that_stops_and_keeps_its_partitions_takes_them_again_and_nothing_moves(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    had, others = fleet.has(a), fleet.has(b)
    claims = fleet.world.counts["claims"]
    a.keeper_state.stop(keep=True)
    fleet.until(H, lambda: not a.running)
    assert fleet.has(a) == set() and fleet.server("a").kept and fleet.server("a").state == "live"
    fleet.world.run(fleet.now + V - 2 * H)
    assert fleet.has(b) == others
    again = fleet.start("a")
    # Without a folder, and within a second, because no other server has to stop first.
    fleet.until(1.0 + H / 4, lambda: fleet.has(again) == had)
    fleet.world.run(fleet.now + 4 * H)
    assert (fleet.has(again), fleet.has(b)) == (had, others)
    assert fleet.world.counts["claims"] - claims == len(had)
    assert not fleet.server("a").kept


def test_a_server_that_keeps_its_partitions_and_does_not_come_back_is_taken_over_after_t(fleet: FleetOf) -> None:
    a, b = fleet.shared("a", "b")
    a.keeper_state.stop(keep=True)
    fleet.until(H, lambda: not a.running)
    left = fleet.now
    fleet.until(T + 2 * H, lambda: fleet.has(b) == {0, 1, 2, 3})
    assert fleet.now - left >= T


def test_a_server_that_keeps_its_partitions_waits_for_its_callbacks(fleet: FleetOf) -> None:
    fleet.shared("b")
    a = fleet.start("a", application=Application(lambda: 2.0))
    fleet.until(12 * H, lambda: len(fleet.has(a)) == 2)
    fleet.world.run(fleet.now + 2 * H)
    a.keeper_state.stop(keep=True)
    fleet.world.run(fleet.now + 0.5)
    assert a.running and fleet.has(a) == set() and not fleet.server("a").kept
    fleet.until(2 * H, lambda: not a.running)
    assert fleet.server("a").kept
