"""The own model of the seed: small plays, states that it reports as unsafe, and its steps. `prove_checkpoint_design` proves the plays."""

from __future__ import annotations

import pytest

from tests.model.checking.checker import Violation
from tests.model.checkpoint_design.plays import Play
from tests.model.checkpoint_design.prove_checkpoint_design import GOLDEN, count, title
from tests.model.checkpoint_design.world import NOBODY, CheckpointDesign, Cluster, Lease, Node, State


@pytest.mark.parametrize("play", [Play(2, 3), Play(3, 1), Play(3, 1, symmetric=False)], ids=title)
def test_the_states_are_those_of_the_specification_and_all_are_safe(play: Play) -> None:
    assert count(play) == GOLDEN[play]


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
