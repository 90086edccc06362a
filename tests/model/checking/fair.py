"""Liveness: is there a way to go on for ever, treating every actor fairly, without what was promised ever happening?

A promise of the kind "this always comes" is broken by an infinite run that never sees it. In a finite graph such a run ends in a set of
states that lead to one another (a strongly connected component, also one state that does nothing any more). By default fair is weak
fairness: an action that is possible in every state of the set is taken in it. What is never possible for long, or may be left undone (a
fault), need not be taken. Under strong fairness an action that is possible in any state of the set is taken in it.

A component that leaves a weakly fair action out although it is possible everywhere has no fair part either, as the action is possible
everywhere in the part too. One that leaves a strongly fair action out may have a fair part among the states in which it is impossible, so
those are looked at again (Emerson and Lei 1987).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from .checker import Model, Report, Violation, uncollected


class Promise[S](NamedTuple):
    """A promise of something that always comes. waiting: true in a state that waits for it. comes: true for a step that brings it."""

    name: str
    waiting: Callable[[S], bool]
    comes: Callable[[S, S], bool]


class Fairness(NamedTuple):
    """The fairness that an endless run must show to its actions.

    strong: of an action, True if it is strongly fair. unfair: of an action, True if it may be left undone after all. finite: of a step's
    label, True if such steps happen a finite number of times, so that none is in the endless part.
    """

    strong: Callable[[str], bool] = lambda action: False
    unfair: Callable[[str], bool] = lambda action: False
    finite: Callable[[str], bool] = lambda label: False


WEAK: Final = Fairness()


class Edge(NamedTuple):
    """A step: its action (None: it need not be taken), the number of the state it leads to, and its label."""

    action: str | None
    to: int
    label: str


class Graph[S](NamedTuple):
    """All that can be reached. keeps: by promise, by state, the positions of the edges with which it does not come."""

    states: list[S]
    edges: list[list[Edge]]
    parents: list[tuple[int, str]]
    keeps: list[list[list[int]]]


def leads_to[S](model: Model[S], promises: Sequence[Promise[S]], action: Callable[[str], str | None], *, limit: int = 2_000_000) -> Report:
    """Look for a fair run in which one of the promises never comes. action: of a label, the fair action it belongs to, or None.

    Safety is checked on the way: `model.check` may raise. The trace of a violation leads to the set of states, then once round in it.
    """
    start = time.perf_counter()
    report = Report()
    with uncollected():
        graph = walk(model, promises, action, limit, report)
        if report.violation is None:
            for number in range(len(promises)):
                trace = broken(graph, promises, number)
                if trace is not None:
                    report.violation, report.trace = f"{promises[number].name}: never, in a fair run", trace
                    break
    report.seconds = time.perf_counter() - start
    return report


def walk[S](model: Model[S], promises: Sequence[Promise[S]], action: Callable[[str], str | None], limit: int, report: Report) -> Graph[S]:
    """Return the graph of all states, for `broken`. The report gets the number of states, and a violation of safety if there is one."""
    first = model.initial()
    graph = Graph([first], [], [(-1, "")], [[] for _ in promises])
    seen: dict[Hashable, int] = {model.key(first): 0}
    queue: deque[int] = deque([0])
    depths = [0]
    while queue:
        number = queue.popleft()
        state, edges = graph.states[number], []
        keeps: list[list[int]] = [[] for _ in promises]
        report.depth = depths[number]
        try:
            model.check(state)
            for label, make in model.successors(state):
                after = make()
                key = model.key(after)
                to = seen.get(key)
                if to is None:
                    if len(seen) == limit:
                        raise OverflowError(f"more than {limit:,} states")
                    to = seen[key] = len(graph.states)
                    graph.states.append(after)
                    graph.parents.append((number, label))
                    depths.append(depths[number] + 1)
                    queue.append(to)
                for at, promise in enumerate(promises):
                    if not promise.comes(state, after):
                        keeps[at].append(len(edges))
                edges.append(Edge(action(label), to, label))
        except Violation as found:
            report.violation, report.trace = str(found), [*_way(graph, number), *found.steps]
            break
        graph.edges.append(edges)
        for at, kept in enumerate(keeps):
            graph.keeps[at].append(kept)
    report.states = len(seen)
    return graph


def _way[S](graph: Graph[S], number: int) -> list[str]:
    labels = []
    while number > 0:
        number, label = graph.parents[number]
        labels.append(label)
    return labels[::-1]


def broken[S](graph: Graph[S], promises: Sequence[Promise[S]], number: int, fairness: Fairness = WEAK) -> list[str] | None:
    """Return the trace of a fair run in which promise `number` never comes: the way to its endless part, then that part. None: it always
    comes."""
    waits = [promises[number].waiting(state) for state in graph.states]

    def kept(at: int) -> Iterator[Edge]:
        edges = (graph.edges[at][place] for place in graph.keeps[number][at])
        return (edge for edge in edges if waits[edge.to] and not fairness.finite(edge.label))

    def follow(at: int) -> Iterable[int]:
        return (edge.to for edge in kept(at)) if waits[at] else ()

    for component in components(len(graph.states), follow):
        if waits[component[0]]:
            members = _fair_part(graph, kept, component, fairness)
            if members:
                labels = [edge.label for at in members for edge in kept(at) if edge.to in members]
                return [*_way(graph, min(members)), "(from here round and round)", *labels[:40]]
    return None


def _fair_part[S](graph: Graph[S], kept: Callable[[int], Iterable[Edge]], component: list[int], fairness: Fairness) -> set[int]:
    """Return states of the component that lead to one another and leave out no fair action; none if there are none."""
    parts = [component]
    while parts:
        members = set(parts.pop())
        taken = {edge.action for at in members for edge in kept(at) if edge.to in members}
        possible = [{edge.action for edge in graph.edges[at]} - {None} for at in members]
        always = set.intersection(*possible)
        if any(action not in taken and not fairness.unfair(action) for action in always if action is not None):
            continue
        missed = {each for each in set.union(*possible) - taken if each is not None and fairness.strong(each) and not fairness.unfair(each)}
        if not missed:
            return members
        rest = [at for at in members if not any(edge.action in missed for edge in graph.edges[at])]
        place = {at: number for number, at in enumerate(rest)}

        def follow(number: int, rest: list[int] = rest, place: dict[int, int] = place) -> Iterator[int]:
            return (place[edge.to] for edge in kept(rest[number]) if edge.to in place)

        parts += [[rest[number] for number in part] for part in components(len(rest), follow)]
    return set()


def components(count: int, follow: Callable[[int], Iterable[int]]) -> Iterator[list[int]]:
    """The strongly connected components of the graph of 0 to count - 1 (Tarjan 1972, without recursion)."""
    index = [-1] * count
    low = [0] * count
    on_path = bytearray(count)
    path: list[int] = []
    counter = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work = [(root, iter(follow(root)))]
        index[root] = low[root] = counter
        counter += 1
        path.append(root)
        on_path[root] = 1
        while work:
            at, rest = work[-1]
            for to in rest:
                if index[to] < 0:
                    index[to] = low[to] = counter
                    counter += 1
                    path.append(to)
                    on_path[to] = 1
                    work.append((to, iter(follow(to))))
                    break
                if on_path[to]:
                    low[at] = min(low[at], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == index[at]:
                    found = []
                    while True:
                        member = path.pop()
                        on_path[member] = 0
                        found.append(member)
                        if member == at:
                            break
                    yield found
