"""The seed's own model has exactly the states of its specification, is safe, and breaks as the seed tells where a rule is switched.

The numbers are golden: a rule that is stated differently, however harmless it looks, leads to other states.
"""

from __future__ import annotations

import pytest

from tests.model.checking.checker import Report, Violation, explore
from tests.model.checkpoint_design.mutants import MUTANTS, PREEMPTION, Mutant, hunt
from tests.model.checkpoint_design.plays import PLAYS, Play
from tests.model.checkpoint_design.story import rows
from tests.model.checkpoint_design.world import NOBODY, CheckpointDesign, Cluster, Lease, Node, State

GOLDEN = {
    Play(2, 2, symmetric=False): (968, 968),
    Play(2, 2): (486, 968),
    Play(2, 3, symmetric=False): (6_960, 6_960),
    Play(2, 3): (3_482, 6_960),
    Play(3, 1, symmetric=False): (1_280, 1_280),
    Play(3, 1): (240, 1_280),
    Play(3, 2): (34_380, 204_224),
}
"""The counts of states without and with distinguished nodes."""
LARGE = {
    Play(3, 2, symmetric=False): (204_224, 204_224),
    Play(3, 3): (901_692, 5_402_432),
}
STEPS = {
    "pre-emption": 11,
    "the leader may lag": 5,
    "elect while taking": 6,
    "no timeout test": 4,
    "a new leader keeps its permission": 5,
}
"""To the violation; the trace has one state more."""


class Weighed(CheckpointDesign):
    """Counts for each state that is explored how many there are like it."""

    weight = 0

    def check(self, state: State) -> None:
        self.weight += len({*self.images(state)})
        super().check(state)


def title(play: Play) -> str:
    return f"{play.size} nodes, bound {play.bound}{'' if play.symmetric else ', told apart'}"


def count(play: Play) -> tuple[int, int]:
    """The counts of the explored states and of those that they represent."""
    model = Weighed(play.size, play.bound, symmetric=play.symmetric)
    report = explore(model)
    assert report.violation is None, str(report)
    return report.states, model.weight


@pytest.mark.parametrize("play", GOLDEN, ids=title)
def test_the_states_are_those_of_the_specification_and_all_are_safe(play: Play) -> None:
    assert count(play) == GOLDEN[play]


@pytest.mark.long
@pytest.mark.parametrize("play", LARGE, ids=title)
def test_the_many_states_are_those_of_the_specification_and_all_are_safe(play: Play) -> None:
    assert count(play) == LARGE[play]


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("name", PLAYS)
def test_the_plays_of_the_command_have_golden_numbers(name: str, level: int) -> None:
    assert PLAYS[name](level) in GOLDEN | LARGE


@pytest.fixture(scope="module")
def preempted() -> Report:
    return hunt(PREEMPTION)


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each is not PREEMPTION], ids=lambda mutant: mutant.name)
def test_a_switched_rule_breaks_it_after_as_many_steps_as_in_the_specification(mutant: Mutant) -> None:
    report = hunt(mutant)
    assert report.violation is not None
    assert report.steps == STEPS[mutant.name], str(report)


def test_pre_emption_looks_harmless_with_one_request() -> None:
    report = hunt(PREEMPTION._replace(bound=2))
    assert report.violation is None
    assert report.states == 34_380


def test_pre_emption_breaks_it_in_the_twelve_steps_of_the_seed(preempted: Report) -> None:
    assert preempted.violation == "two can take a checkpoint"
    assert preempted.steps == STEPS[PREEMPTION.name]
    assert [row[:2] for row in rows(PREEMPTION, preempted.trace)] == [
        ("1", "initial state"),
        ("2", "n1 is elected leader"),
        ("3", "n1 sends request 1: the lease for n2"),
        ("4", "n1 fails"),
        ("5", "n2 executes request 1"),
        ("6", "n2 is elected leader"),
        ("7", "n2 sends request 2: the lease for n3"),
        ("8", "n2 fails"),
        ("9", "n2 recovers"),
        ("10", "n2 executes request 1"),
        ("11", "n3 executes request 1"),
        ("12", "n3 executes request 2"),
    ]


def test_the_story_shows_what_each_node_knows_after_each_step(preempted: Report) -> None:
    first, second, third, *_, before, last = rows(PREEMPTION, preempted.trace)
    assert first[2:] == ("up", "up", "up")
    assert second[2:] == ("leads", "up", "up")
    assert third[2:] == ("leads, log n2, lease 1 n2", "log n2", "log n2")
    assert before[2:] == ("down", "log n2 n3, at 1, lease 1, can", "log n2 n3, at 1, lease 1 n2")
    assert last[2:] == ("down", "log n2 n3, at 1, lease 1, can", "log n2 n3, at 2, lease 2, can")


UP = Node(up=True, log=(0, 1))
ABLE = [UP._replace(lease=Lease(at, 1), can=True) for at in range(3)]
BUSY = [node._replace(taking=True) for node in ABLE]


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (Cluster((ABLE[0], ABLE[1], UP)), "two can take a checkpoint"),
        (Cluster((BUSY[0], BUSY[1]._replace(can=False), UP)), "two take a checkpoint"),
        (Cluster((ABLE[0], UP, UP), leader=0), "the leader can take a checkpoint"),
        (Cluster((BUSY[0]._replace(can=False), UP, UP), leader=0), "the leader takes a checkpoint"),
        (Cluster((UP, ABLE[1], UP), leader=0), "a checkpoint of which the leader knows no lease"),
        (Cluster((UP._replace(lease=Lease(2, 2)), ABLE[1], UP), leader=0), "a checkpoint of another than the leader knows"),
        (Cluster((BUSY[0]._replace(can=False), UP, UP)), "a checkpoint without permission"),
        (Cluster((ABLE[0]._replace(lease=None), UP, UP)), "permission without the lease"),
        (Cluster((ABLE[0]._replace(lease=Lease(1, 1)), UP, UP)), "permission without the lease"),
        (Cluster((ABLE[0], UP, UP), timed_out=1), "permission by a lease that timed out"),
        (Cluster((UP, UP._replace(log=(0, 2)), UP)), "logs that differ"),
    ],
)
def test_an_unsafe_state_is_reported(cluster: Cluster, why: str) -> None:
    model = CheckpointDesign(3, 3)
    with pytest.raises(Violation, match=f"^{why}$"):
        model.check(State(model.initial().paths, cluster))


# As any path may be lost and found at any moment, the numbers do not show what needs one.

BLANK = Node(up=True, log=(NOBODY, NOBODY))


def steps(cluster: Cluster, *lost: tuple[int, int]) -> dict[str, Cluster]:
    """Return the next steps except those of lost paths, each with the state of the cluster after it."""
    model = CheckpointDesign(len(cluster.nodes), 3)
    after = {label: make() for label, make in model.successors(State(model.initial().paths - {*lost}, cluster))}
    return {label: state.cluster for label, state in after.items() if not label.startswith("the path")}


def sends(cluster: Cluster, *lost: tuple[int, int]) -> list[str]:
    return [label for label in steps(cluster, *lost) if " sends " in label]


def test_a_leader_talks_to_a_majority_both_ways() -> None:
    cluster = Cluster((BLANK, BLANK, BLANK))
    elections = {f"n{at} is elected leader" for at in (1, 2, 3)}
    assert elections < steps(cluster, (0, 1), (1, 0)).keys()
    assert elections & steps(cluster, (0, 1), (2, 0)).keys() == {"n2 is elected leader", "n3 is elected leader"}
    assert not elections & steps(cluster.put(0, BLANK._replace(up=False)), (1, 2)).keys()


def test_only_a_leader_with_a_majority_sends_and_gives_the_lease_to_whom_it_talks_to() -> None:
    cluster = Cluster((BLANK, BLANK, BLANK), leader=0)
    assert sends(cluster) == ["n1 sends request 1: the lease for n2", "n1 sends request 1: the lease for n3"]
    assert sends(cluster, (1, 0)) == ["n1 sends request 1: the lease for n3"]
    assert sends(cluster, (1, 0), (0, 2)) == []
    of_five = Cluster((BLANK,) * 5, leader=0)
    assert len(sends(of_five, (0, 3), (4, 0))) == 2
    assert sends(of_five, (0, 2), (0, 3), (4, 0)) == []


def test_a_request_enters_the_logs_that_the_leader_reaches_and_propagates_to_the_others() -> None:
    cluster, log = Cluster((BLANK, BLANK, BLANK), leader=0), (1, NOBODY)
    reached = steps(cluster, (2, 0))["n1 sends request 1: the lease for n2"]
    assert [node.log for node in reached.nodes] == [log, log, log]
    missed = steps(cluster, (0, 2))["n1 sends request 1: the lease for n2"]
    assert [node.log for node in missed.nodes] == [log, log, BLANK.log]
    assert missed.nodes[0].lease == Lease(1, 1)
    assert steps(missed, (0, 2))["n2 propagates to n3"].nodes[2].log == log
    assert not {"n1 propagates to n3", "n1 propagates to n2"} & steps(missed, (0, 2)).keys()


def test_a_lease_is_replaced_when_it_timed_out_or_its_completion_is_seen() -> None:
    leading = BLANK._replace(log=(1, NOBODY), executed=1, lease=Lease(1, 1))
    finished = BLANK._replace(log=(1, NOBODY), executed=1, payload=1)
    done = Cluster((leading, finished, BLANK), leader=0)
    assert len(sends(done)) == 2
    assert sends(done, (1, 0)) == []
    assert sends(done.put(1, finished._replace(payload=0))) == []
    assert len(sends(done.put(1, finished._replace(payload=0))._replace(timed_out=1))) == 2


def test_a_server_that_finishes_reports_it_and_has_no_lease_any_more() -> None:
    taker = BLANK._replace(log=(1, NOBODY), executed=1, lease=Lease(1, 1), can=True, taking=True)
    after = steps(Cluster((BLANK, taker, BLANK)))["n2 finishes its checkpoint"]
    assert after.nodes[1] == Node(up=True, log=(1, NOBODY), executed=1, payload=1)
    assert after.checkpoint == (1,)


def test_a_leader_that_executes_a_request_gets_no_permission_and_keeps_the_lease_it_decided_on() -> None:
    leader = BLANK._replace(log=(0, 1), lease=Lease(1, 2))
    after = steps(Cluster((leader, BLANK, BLANK), leader=0))["n1 executes request 1"]
    assert after.nodes[0] == leader._replace(executed=1)
