"""The temporal invariants of the source design of checkpoints, on runs without end.

The log of an endless run grows without end. What lies before the last request that every node has executed and that no lease rests on no
longer decides anything, so it is cut off, and the requests after it are numbered from 1 again. That makes the graph finite, except for
runs in which the log between that place and its end grows beyond the window: there the run is followed no further, and proves nothing.

The fairness of the specification is weak for the recovery of nodes and paths, and strong for every other action except failures and
time-outs, which may be left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Final, NamedTuple

from tests.model.checking.checker import Report, uncollected
from tests.model.checking.fair import Fairness, Graph, Promise, broken, walk

from .world import NOBODY, CheckpointDesign, Cluster, Lease, Node, State, reachable

TIME_OUT: Final = "a lease times out"
WATCHED: Final = 0
"""The node that invariants about each node are checked for: the nodes do not differ."""


class Watched(NamedTuple):
    """A state, and what the watched node still owes. state: None beyond the window."""

    state: State | None
    to_start: bool = False
    """It could take a checkpoint, and has neither started it, failed nor timed out since."""
    to_finish: bool = False
    """It took a checkpoint, and has neither finished it, failed nor timed out since."""


class Play(NamedTuple):
    """`window` requests may lie after the last one that decides nothing any more. What may fail: nodes, paths."""

    size: int
    window: int
    nodes_fail: bool
    paths_fail: bool


PLAYS: dict[str, Callable[[int], Play]] = {
    "endless design: two nodes": lambda level: Play(2, 2, nodes_fail=True, paths_fail=bool(level)),
    "endless design: three nodes": lambda level: Play(3, 2, nodes_fail=bool(level), paths_fail=False),
}


class EndlessDesign:
    """The model that `walk` explores."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.design = CheckpointDesign(play.size, play.window + 1, symmetric=False)
        self.beyond = CheckpointDesign(play.size, play.window + 2, symmetric=False)

    def initial(self) -> Watched:
        return Watched(self.design.initial())

    def successors(self, watched: Watched) -> Iterator[tuple[str, Callable[[], Watched]]]:
        state = watched.state
        if state is None:
            return
        for label, make in self.design.successors(state):
            if label.endswith("fails") and not (self.play.paths_fail if label.startswith("the path") else self.play.nodes_fail):
                continue
            early = " early" if "times out" in label and holder_could(state.cluster) else ""
            yield label + early, lambda make=make: self._after(watched, make())
        if state.cluster.sent == self.play.window and state.cluster.leader != NOBODY and self.beyond.may_send(*state):
            for holder in reachable(state.paths, state.cluster.nodes, state.cluster.leader):
                if holder != state.cluster.leader:
                    yield f"the lease goes beyond the window: the lease for n{holder + 1}", lambda: Watched(None)

    def key(self, watched: Watched) -> Hashable:
        return watched

    def check(self, watched: Watched) -> None:
        if watched.state is not None:
            self.design.check(watched.state)

    def _after(self, before: Watched, state: State) -> Watched:
        node, timed_out = state.cluster.nodes[WATCHED], state.cluster.timed_out
        excused = not node.up or (node.lease is not None and node.lease.request <= timed_out)
        to_start = (before.to_start or node.can) and not (excused or node.taking)
        to_finish = (before.to_finish or node.taking) and not (excused or node.payload == node.executed)
        return Watched(State(state.paths, self._cut(state.cluster)), to_start, to_finish)

    def _cut(self, cluster: Cluster) -> Cluster:
        nodes, leader, timed_out, checkpoint = cluster
        base = min([node.executed for node in nodes if node.up] + [len(checkpoint)] * self.play.nodes_fail)
        resting = [node.lease.request - 1 for node in nodes if node.lease is not None and node.lease.request > timed_out]
        base = min([base, *resting])
        if base <= 0:
            return cluster
        return Cluster(tuple(cut(node, base) for node in nodes), leader, max(0, timed_out - base), checkpoint[base:])


def cut(node: Node, base: int) -> Node:
    """Return the node with requests numbered from `base` + 1 on. A payload of before it is completed by no request: -1."""
    lease = None if node.lease is None or node.lease.request <= base else Lease(node.lease.holder, node.lease.request - base)
    log = node.log[base:] + (NOBODY,) * base
    return node._replace(log=log, executed=max(0, node.executed - base), payload=max(-1, node.payload - base), lease=lease)


def holder_could(cluster: Cluster) -> bool:
    """Return True if the next lease to time out has a holder that could still take its checkpoint, or is taking it."""
    request = cluster.timed_out + 1
    holder = max(node.log[request - 1] for node in cluster.nodes)
    node = cluster.nodes[holder]
    return node.up and holder != cluster.leader and (node.executed < request or node.can)


def action(label: str) -> str | None:
    """Return the fair action that a step belongs to. None: a failure, or a time-out before its time."""
    if label.endswith(("fails", "early")):
        return None
    if "times out" in label:
        return TIME_OUT
    if "the lease for" in label:
        return "send" + label.rpartition("for")[2]
    return label.partition(" executes")[0] + " executes" if " executes" in label else label


def _finishes(before: Watched, after: Watched, at: int) -> bool:
    if before.state is None or after.state is None:
        return False
    node = after.state.cluster.nodes[at]
    return before.state.cluster.nodes[at].taking and node.up and not node.taking and node.payload == node.executed


def promises(play: Play) -> list[Promise[Watched]]:
    """Return the temporal invariants: four of the specification, and the text's own about each secondary.

    The specification's fourth compares a record with a log, and so always holds; its meaning is that a checkpoint is written.
    """

    def nobody_can(watched: Watched) -> bool:
        return watched.state is not None and not any(node.can for node in watched.state.cluster.nodes)

    def serves(watched: Watched) -> bool:
        return watched.state is not None and watched.state.cluster.nodes[WATCHED].up and watched.state.cluster.leader != WATCHED

    def some(before: Watched, after: Watched) -> bool:
        return any(_finishes(before, after, at) for at in range(play.size))

    return [
        Promise("a node can take a checkpoint, again and again", nobody_can, lambda before, after: False),
        Promise("a node that can take a checkpoint starts it, fails or times out", lambda at: at.to_start, lambda before, after: False),
        Promise("a checkpoint is finished, fails or times out", lambda at: at.to_finish, lambda before, after: False),
        Promise("a checkpoint is written, again and again", lambda at: at.state is not None, some),
        Promise("each secondary finishes a checkpoint", serves, lambda before, after: _finishes(before, after, WATCHED)),
    ]


def _strong(name: str) -> bool:
    return not name.endswith("recovers") and name != TIME_OUT


def _nothing(_: str) -> bool:
    return False


class Assumptions(NamedTuple):
    """The assumptions beside the fairness that the specification states."""

    time_out: bool = True
    """A lease whose holder cannot take its checkpoint any more times out."""
    failures_end: bool = True
    """Nodes and paths fail a finite number of times."""
    early_ends: bool = True
    """A finite number of leases time out while their holders could still take their checkpoints."""

    def fairness(self) -> Fairness:
        """Return the fairness under all of it."""
        endings = ("fails",) * self.failures_end + ("early",) * self.early_ends
        return Fairness(_strong, _nothing if self.time_out else TIME_OUT.__eq__, lambda label: label.endswith(endings))


ALL = Assumptions()
STATED = Assumptions(False, False, False)


class Mutant(NamedTuple):
    """An assumption that is left out, and the play in which this shows."""

    name: str
    play: str
    assumptions: Assumptions


MUTANTS = [
    Mutant("that leases time out", "endless design: two nodes", ALL._replace(time_out=False)),
    Mutant("that failures end", "endless design: two nodes", ALL._replace(failures_end=False)),
    Mutant("that early time-outs end", "endless design: three nodes", ALL._replace(early_ends=False)),
]


def explore(model: EndlessDesign, limit: int = 2_000_000) -> tuple[Report, Graph[Watched]]:
    """Return the report on the model's states, and their graph."""
    report = Report()
    with uncollected():
        return report, walk(model, promises(model.play), action, limit, report)


def verdicts(play: Play, graph: Graph[Watched], assumptions: Assumptions) -> dict[str, list[str] | None]:
    """Return for each invariant the trace of a run that breaks it, or None."""
    given, fairness = promises(play), assumptions.fairness()
    return {each.name: broken(graph, given, number, fairness) for number, each in enumerate(given)}


def follow(model: EndlessDesign, *, limit: int = 2_000_000, progress: object = None, assumptions: Assumptions = ALL) -> Report:
    """Look for a fair run that breaks an invariant. As `checker.explore`."""
    start = time.perf_counter()
    report, graph = explore(model, limit)
    if report.violation is None:
        for name, trace in verdicts(model.play, graph, assumptions).items():
            if trace is not None:
                report.violation, report.trace = f"{name}: not in a fair run", trace
                break
    report.seconds = time.perf_counter() - start
    return report


def hunt(mutant: Mutant) -> Report:
    """Look for the fair run that the assumption excludes."""
    return follow(EndlessDesign(PLAYS[mutant.play](0)), assumptions=mutant.assumptions)
