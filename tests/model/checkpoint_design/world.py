"""The source design of checkpoints as a model: replicas that agree through a replicated log who may take a checkpoint, as a transition
system for the checker.

It follows "Ringmaster Checkpoint Coordination" (Azure DNS, 2017; its specification is public in Azure/RingMaster). Nothing of our own
protocol is in it. Requests are numbered from 1, in the order of the log; nodes from 0, and shown as n1, n2, ...

Variables (11), of each node unless it says otherwise; * is volatile: it goes when the node fails.

| variable   | what it is                                                                                         |
| ---------- | -------------------------------------------------------------------------------------------------- |
| up         | it runs                                                                                            |
| paths      | of all: the network paths that work, each one way                                                  |
| leader     | of all: the primary, or none                                                                       |
| log        | whom each request gives the checkpoint lease; a gap where the node missed the request              |
| executed*  | the last request that it executed                                                                  |
| payload*   | its vote payload: up to which request its last checkpoint goes, 0 if it took none                  |
| lease*     | the checkpoint lease that it knows of: the holder, and the request that gave it                    |
| can*       | it believes that it can take a checkpoint                                                          |
| taking*    | it is taking a checkpoint                                                                          |
| timed_out  | of all: the last request whose lease has timed out                                                 |
| checkpoint | of all: the latest checkpoint in cloud storage, that is, the requests executed in it               |

Actions (11):

- *fail*, *recover*: a node comes back with the latest checkpoint, and with its own log for what follows.
- *a path fails*, *a path recovers*.
- *elect*, while there is no leader: a node that is up, takes no checkpoint, can talk to a majority (itself counts) and has executed
  every request in any node's log. It gives up its own permission. It goes on to know the lease, be it its own.
- *send*, by a leader that can talk to a majority: the next request gives the lease to another node that it can talk to. It must know of
  no lease, or of one that timed out, or see in the holder's payload that the checkpoint is complete. The request enters the logs that
  the leader reaches; it notes the lease at once.
- *propagate*: one node's log fills the gaps of another's.
- *execute* the next request. Not while taking a checkpoint: requests wait then, which is why no lease can be revoked. The holder may
  now take its checkpoint, unless it is the leader. Every node but the leader notes the lease; if it timed out before, it grants nothing
  and none is noted.
- *start*, *finish*: who finishes writes the latest checkpoint and its payload, and gives up lease and permission.
- *time out*: the oldest lease that has not timed out does so, for all at once, and ends a checkpoint that rests on it. One clock for all is
  what the seed's 70 % is for: the holder stops first, and whose clock differs by more is no replica.

Invariants, in every state:

- the leader neither can take nor takes a checkpoint;
- if the leader knows of no lease, nobody can or does; if it knows of one, nobody but the holder;
- at most one can; at most one does;
- who takes one can; who can holds the lease, as far as it knows, and that has not timed out;
- logs agree wherever two have an entry.

The model is finite because logs are: with the log bound b, requests up to b - 1 are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import permutations
from operator import add
from typing import NamedTuple

from tests.model.checking.checker import Violation

NOBODY = -1
"""In a log: the node missed that request. As leader: there is none."""

type Paths = frozenset[tuple[int, int]]
"""From and to, of the paths that work."""
type Renaming = tuple[int, ...]
"""At each node its other name; NOBODY, which is the last place too, stays."""
type Step = tuple[str, Callable[[], State]]


class Lease(NamedTuple):
    """The replica that may take a checkpoint, and its request."""

    holder: int
    request: int


class Node(NamedTuple):
    """One replica; the table in the module's docstring defines each field."""

    up: bool
    log: tuple[int, ...]
    executed: int = 0
    payload: int = 0
    lease: Lease | None = None
    can: bool = False
    taking: bool = False


class Cluster(NamedTuple):
    """All but the paths: as every path may fail and recover at any time, each cluster is met with all of them."""

    nodes: tuple[Node, ...]
    leader: int = NOBODY
    timed_out: int = 0
    checkpoint: tuple[int, ...] = ()

    @property
    def sent(self) -> int:
        """The last request that any log holds."""
        return max(number for node in self.nodes for number in (0, *_numbers(node.log)))

    def put(self, at: int, node: Node) -> Cluster:
        """Return the cluster with this node in place of the node at `at`."""
        return self._replace(nodes=(*self.nodes[:at], node, *self.nodes[at + 1 :]))


class State(NamedTuple):
    """The world that the checker walks."""

    paths: Paths
    cluster: Cluster


class Rules(NamedTuple):
    """The seed's rules; each switched one is a mutant, `preempt` the seed's attempted optimization."""

    preempt: bool = False
    """A leader that holds the lease itself sends the next request at once."""
    leader_may_lag: bool = False
    elect_while_taking: bool = False
    ignore_timeout: bool = False
    """A request is executed without a look at the timeout."""
    keep_permission: bool = False
    """A new leader does not give up its own."""


SEED = Rules()


class Images[T](dict[T, list[int]]):
    """Numbers for each thing under every renaming: the same number for what is equal then, each a multiple of `factor`."""

    def __init__(self, renamings: list[Renaming], rename: Callable[[T, Renaming], T], factor: int = 1) -> None:
        super().__init__()
        self._renamings, self._rename, self._factor = renamings, rename, factor
        self._numbers: dict[T, int] = {}

    def __missing__(self, thing: T) -> list[int]:
        numbers = self._numbers
        found = [numbers.setdefault(self._rename(thing, to), len(numbers)) * self._factor for to in self._renamings]
        self[thing] = found
        return found


class CheckpointDesign:
    """A cluster of `size` nodes whose logs stay below `bound`; states that differ only in the nodes' names are one when `symmetric`."""

    def __init__(self, size: int, bound: int, rules: Rules = SEED, *, symmetric: bool = True) -> None:
        self.size, self.bound, self.rules = size, bound, rules
        self.majority = size // 2 + 1
        self.links = list(permutations(range(size), 2))
        identity = tuple(range(size))
        renamings = [(*names, NOBODY) for names in (permutations(identity) if symmetric else [identity])]
        self._path_images = Images(renamings, _rename_paths)
        self._cluster_images = Images(renamings, _rename_cluster, factor=1 << len(self.links))
        self._apart: dict[Cluster, list[tuple[str, Cluster]]] = {}

    def initial(self) -> State:
        """All up, all connected, nothing asked yet."""
        blank = Node(up=True, log=(NOBODY,) * (self.bound - 1))
        return State(frozenset(self.links), Cluster((blank,) * self.size))

    def successors(self, state: State) -> Iterator[Step]:
        """The actions, each with whom it concerns."""
        paths, cluster = state
        for label, after in self._together(paths, cluster):
            yield label, partial(State, paths, after)
        if (apart := self._apart.get(cluster)) is None:
            apart = self._apart[cluster] = list(self._on_their_own(cluster))
        for label, after in apart:
            yield label, partial(State, paths, after)
        for link in self.links:
            name = f"the path from n{link[0] + 1} to n{link[1] + 1}"
            if link in paths:
                yield f"{name} fails", partial(State, paths - {link}, cluster)
            else:
                yield f"{name} recovers", partial(State, paths | {link}, cluster)

    def key(self, state: State) -> Hashable:
        """The least number among the state's images under every renaming of the nodes."""
        return min(self.images(state))

    def images(self, state: State) -> Iterable[int]:
        """The state's number under each renaming: as many different ones as there are states like it."""
        return map(add, self._path_images[state.paths], self._cluster_images[state.cluster])

    def check(self, state: State) -> None:
        """The seed's safety invariants."""
        nodes, leader, timed_out, _ = state.cluster
        able = [at for at, node in enumerate(nodes) if node.can]
        busy = [at for at, node in enumerate(nodes) if node.taking]
        _holds(len(able) <= 1, "two can take a checkpoint")
        _holds(len(busy) <= 1, "two take a checkpoint")
        if leader != NOBODY:
            _holds(leader not in able, "the leader can take a checkpoint")
            _holds(leader not in busy, "the leader takes a checkpoint")
            known = nodes[leader].lease
            _holds(known is not None or not able + busy, "a checkpoint of which the leader knows no lease")
            _holds(known is None or {known.holder}.issuperset(able + busy), "a checkpoint of another than the leader knows")
        for at, node in enumerate(nodes):
            _holds(node.can or not node.taking, "a checkpoint without permission")
            if node.can:
                _holds(node.lease is not None and node.lease.holder == at, "permission without the lease")
                _holds(node.lease is not None and node.lease.request > timed_out, "permission by a lease that timed out")
        for entries in zip(*(node.log for node in nodes), strict=True):
            _holds(len({NOBODY, *entries}) <= 2, "logs that differ")

    def _together(self, paths: Paths, cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
        """Elect, send and propagate: what needs paths."""
        nodes, leader = cluster.nodes, cluster.leader
        if leader == NOBODY:
            for at, node in enumerate(nodes):
                if self._electable(paths, cluster, at):
                    elected = node if self.rules.keep_permission else node._replace(can=False)
                    yield f"n{at + 1} is elected leader", cluster.put(at, elected)._replace(leader=at)
        elif self.may_send(paths, cluster):
            request = cluster.sent + 1
            for holder in reachable(paths, nodes, leader):
                if holder != leader:
                    after = _sent(paths, cluster, Lease(holder, request))
                    yield f"n{leader + 1} sends request {request}: the lease for n{holder + 1}", after
        for source, target in self.links:
            if (source, target) in paths and nodes[source].up and nodes[target].up:
                log = tuple(map(_filled, nodes[target].log, nodes[source].log))
                if log != nodes[target].log:
                    yield f"n{source + 1} propagates to n{target + 1}", cluster.put(target, nodes[target]._replace(log=log))

    def _electable(self, paths: Paths, cluster: Cluster, at: int) -> bool:
        node = cluster.nodes[at]
        if len(reachable(paths, cluster.nodes, at)) < self.majority:
            return False
        if node.taking and not self.rules.elect_while_taking:
            return False
        return self.rules.leader_may_lag or node.executed == cluster.sent

    def may_send(self, paths: Paths, cluster: Cluster) -> bool:
        reached, lease = reachable(paths, cluster.nodes, cluster.leader), cluster.nodes[cluster.leader].lease
        if cluster.sent + 1 >= self.bound or len(reached) < self.majority:
            return False
        if lease is None or lease.request <= cluster.timed_out:
            return True
        if self.rules.preempt and lease.holder == cluster.leader:
            return True
        return lease.holder in reached and lease.request <= cluster.nodes[lease.holder].payload

    def _on_their_own(self, cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
        """Fail, recover, execute, start, finish, and time out: what no path matters for."""
        nodes, leader, timed_out, checkpoint = cluster
        for at, node in enumerate(nodes):
            name = f"n{at + 1}"
            if not node.up:
                log = checkpoint + node.log[len(checkpoint) :]
                yield f"{name} recovers", cluster.put(at, Node(True, log, executed=len(checkpoint)))
                continue
            down = cluster.put(at, Node(False, node.log))
            yield f"{name} fails", down._replace(leader=NOBODY) if at == leader else down
            if not node.taking and node.executed < len(node.log) and node.log[node.executed] != NOBODY:
                yield f"{name} executes request {node.executed + 1}", cluster.put(at, self._executed(cluster, at))
            if node.can and not node.taking:
                yield f"{name} starts its checkpoint", cluster.put(at, node._replace(taking=True))
            if node.taking:
                done = cluster.put(at, node._replace(payload=node.executed, lease=None, can=False, taking=False))
                yield f"{name} finishes its checkpoint", done._replace(checkpoint=node.log[: node.executed])
        # Requests are numbered without gaps: the next exists if any later one does.
        if timed_out < cluster.sent:
            last = timed_out + 1
            stopped = tuple(
                node._replace(can=False, taking=False) if node.lease is not None and node.lease.request <= last else node for node in nodes
            )
            yield f"the lease of request {last} times out", cluster._replace(nodes=stopped, timed_out=last)

    def _executed(self, cluster: Cluster, at: int) -> Node:
        node = cluster.nodes[at]
        request, leads = node.executed + 1, at == cluster.leader
        holder = node.log[node.executed]
        late = request <= cluster.timed_out and not self.rules.ignore_timeout
        heard = None if late else Lease(holder, request)
        return node._replace(
            executed=request,
            can=holder == at and not leads and not late,
            # Who leads decided on the lease itself.
            lease=node.lease if leads else heard,
        )


def reachable(paths: Paths, nodes: tuple[Node, ...], at: int) -> list[int]:
    """Return the nodes that can talk to the node at `at`, both ways; itself among them, unless it is down."""
    if not nodes[at].up:
        return []
    return [peer for peer, node in enumerate(nodes) if node.up and (peer == at or ((at, peer) in paths and (peer, at) in paths))]


def _sent(paths: Paths, cluster: Cluster, lease: Lease) -> Cluster:
    leader, place = cluster.leader, lease.request - 1
    nodes = [
        node._replace(log=(*node.log[:place], lease.holder, *node.log[lease.request :]))
        if node.up and (at == leader or (leader, at) in paths)
        else node
        for at, node in enumerate(cluster.nodes)
    ]
    nodes[leader] = nodes[leader]._replace(lease=lease)
    return cluster._replace(nodes=tuple(nodes))


def _filled(own: int, other: int) -> int:
    return other if own == NOBODY else own


def _numbers(log: tuple[int, ...]) -> Iterator[int]:
    return (number for number, holder in enumerate(log, 1) if holder != NOBODY)


def _rename_paths(paths: Paths, names: Renaming) -> Paths:
    return frozenset([(names[source], names[target]) for source, target in paths])


def _rename_cluster(cluster: Cluster, names: Renaming) -> Cluster:
    nodes = list(cluster.nodes)
    for at, node in enumerate(cluster.nodes):
        lease = node.lease
        nodes[names[at]] = node._replace(
            log=tuple([names[holder] for holder in node.log]), lease=lease and Lease(names[lease.holder], lease.request)
        )
    checkpoint = tuple([names[holder] for holder in cluster.checkpoint])
    return Cluster(tuple(nodes), names[cluster.leader], cluster.timed_out, checkpoint)


def _holds(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Violation(otherwise)
