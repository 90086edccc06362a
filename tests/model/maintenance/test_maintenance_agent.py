"""One play of a node's agent, explored in every run of the tests. `prove_agent` proves all plays, and that every mutant is caught."""

from __future__ import annotations

from tests.model.maintenance.plays import PLAYS
from tests.model.maintenance.world import AgentWorld
from tests.model.stored import assert_play_holds


def test_agent_approves_only_what_is_prepared_and_puts_the_node_back() -> None:
    assert_play_holds("agent", "drained", AgentWorld(PLAYS["drained"](0)))
