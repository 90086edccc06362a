"""The demonstration is the whole of it: real agents, lease keepers and hooks, the app on Azurite, the emulator for Azure."""

from __future__ import annotations

import json

from devhost.azurite import ROOT
from tests import waiting
from tests.making import make_command, make_environment


def test_a_rolling_host_update_goes_one_fault_domain_at_a_time_and_every_node_is_ready_for_it() -> None:
    command = [*make_command("demo-maintenance", "--json"), "--silent"]
    ran = waiting.run(command, cwd=ROOT, env=make_environment())
    assert ran.returncode == 0, ran.stderr + ran.stdout
    result = json.loads(ran.stdout)
    assert (result["wrong"], result["most_domains_down"]) == ([], 1)
    assert len(result["nodes"]) == 5
    for stages in result["nodes"].values():
        order = [stages[stage] for stage in ("notice", "leases left", "prepared", "approved", "impact", "restored")]
        assert order == sorted(order)
    # Callers were measured while nodes caught up, and noticed it where two nodes of a domain did at once.
    callers = result["callers"]
    # On a busy machine, a node may have caught up between two probes.
    assert len(callers) == 3 and any({"one_node", "some_nodes", "domain"} & probe["phases"].keys() for probe in callers.values())
    passed = [sentence for probe in callers.values() for sentence in probe["passed"] if "while a fault domain catches up" in sentence]
    assert passed and {probe["verdict"] for probe in callers.values()} >= {"passed"}
