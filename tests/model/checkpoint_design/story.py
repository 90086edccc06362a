"""A mutant's trace as a table: every step with what each node then knows, to be read beside the seed's text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from tests.model.checking.checker import Report

from .mutants import Mutant
from .plays import Play, world
from .world import NOBODY, Cluster

LEGEND = (
    "log: whom each request gives the lease, . where the node missed it · at 1: has executed request 1 · "
    "lease 1: by request 1 it has the lease itself, lease 1 n2: n2 has it · can, takes: a checkpoint"
)


def tell(mutant: Mutant, report: Report) -> Table:
    """The trace from the initial state on, which is step 1, to the violation."""
    table = Table("", "step", "n1", "n2", "n3", title=f"{mutant.name}: {report.violation}", caption=LEGEND)
    for row in rows(mutant, report.trace):
        table.add_row(*row)
    return table


def rows(mutant: Mutant, trace: list[str]) -> Iterator[tuple[str, ...]]:
    """Number, step and nodes of each state that the steps lead through."""
    model = world(Play(3, mutant.bound, rules=mutant.rules))
    state = model.initial()
    yield ("1", "initial state", *_nodes(state.cluster))
    for number, step in enumerate(trace, 2):
        state = dict(model.successors(state))[step]()
        yield (str(number), step, *_nodes(state.cluster))


def _nodes(cluster: Cluster) -> Iterator[str]:
    for at, node in enumerate(cluster.nodes):
        log = " ".join("." if holder == NOBODY else f"n{holder + 1}" for holder in node.log[: cluster.sent])
        if not node.up:
            yield "down"
            continue
        known = ["leads"] * (at == cluster.leader) + [f"log {log}"] * bool(log)
        if node.executed:
            known.append(f"at {node.executed}")
        if node.lease is not None:
            holder = "" if node.lease.holder == at else f" n{node.lease.holder + 1}"
            known.append(f"lease {node.lease.request}{holder}")
        known += ["can"] * node.can + ["takes"] * node.taking
        yield ", ".join(known) or "up"
