"""`readyz` says which functions that the settings demand do not run: those of a stale package, and those that a setting disables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from shared.app.given_functions import GivenFunctions, disabled
from shared.app.timers import SCHEDULES, SOON_FUNCTION
from shared.core.settings import Settings
from shared.extras.parts import KAFKA_SOURCES, PARTS
from shared.scheduler.queue_functions import QUEUE_FUNCTIONS, SECOND
from tests.paths import ROOT
from tests.texts import assert_text
from tests.unit.scheduler.mirror.pair import PairWorld

QUEUES = {name for name, *_ in QUEUE_FUNCTIONS} | {SOON_FUNCTION}
ALONE = QUEUES | set(SCHEDULES)
PAIR = ALONE | {name + SECOND for name in QUEUES}
KAFKA = {"ingest_kafka"}
SAFE: Mapping[str, Any] = {"storage": "AccountName=home;AccountKey=a2V5", "signing_key": "s" * 32}
MIRRORED: Mapping[str, Any] = {
    **SAFE,
    "mirror": "AccountName=other;AccountKey=a2V5;TableEndpoint=https://t.example;QueueEndpoint=https://q.example",
}
SOURCES: Mapping[str, Any] = {**SAFE, "kafka_sources": "[]"}


def fault(names: Iterable[str], given: Mapping[str, Any] = SAFE, second: bool = False, **environment: str) -> str:
    variables = {KAFKA_SOURCES: given["kafka_sources"]} if "kafka_sources" in given else {}
    return GivenFunctions(names, {**variables, **environment}, PARTS).fault(Settings(**given), second=second)


@pytest.mark.parametrize(
    ("names", "given"),
    [(ALONE, SAFE), (ALONE | {"events_get"}, SAFE), (PAIR, SAFE), (PAIR, MIRRORED), (ALONE | KAFKA, SOURCES), (frozenset(), MIRRORED)],
)
def test_functions_that_the_settings_demand_or_a_worker_that_has_listed_none_are_no_fault(
    names: frozenset[str], given: Mapping[str, Any]
) -> None:
    assert fault(names, given) == fault(names, given, second=True) == ""


@pytest.mark.parametrize(
    ("names", "given", "missing"),
    [
        (ALONE - {"fire_shard"}, SAFE, {"fire_shard"}),
        (ALONE - {"sweep"}, SAFE, {"sweep"}),
        (ALONE, SOURCES, KAFKA),
        (ALONE, MIRRORED, PAIR - ALONE),
        (PAIR - {f"ingest_events{SECOND}"}, MIRRORED, {f"ingest_events{SECOND}"}),
    ],
)
@pytest.mark.parametrize("second", [False, True])
def test_a_package_that_lacks_a_demanded_function_is_a_fault_of_both_sides(
    names: set[str], given: Mapping[str, Any], missing: set[str], second: bool
) -> None:
    assert_text("health.functions-missing", fault(names, given, second), functions=", ".join(sorted(missing)))


@pytest.mark.parametrize(
    "name", ["AzureWebJobs.fire_shard.Disabled", "AzureWebJobs__fire_shard__Disabled", "azurewebjobs.FIRE_SHARD.disabled"]
)
@pytest.mark.parametrize("value", ["true", "True", "1"])
def test_a_function_that_a_setting_of_the_host_disables_is_a_fault(name: str, value: str) -> None:
    assert_text("health.functions-disabled", fault(ALONE, SAFE, **{name: value}), function="fire_shard")


@pytest.mark.parametrize(
    "setting", [{"AzureWebJobs.fire_shard.Disabled": "false"}, {"AzureWebJobs.events_get.Disabled": "1"}, {"AzureWebJobsStorage": "1"}]
)
def test_other_settings_of_the_host_are_no_fault(setting: dict[str, str]) -> None:
    assert fault(ALONE, SAFE, **setting) == ""


def test_after_a_failover_the_functions_of_the_lost_account_may_be_disabled() -> None:
    off = {f"AzureWebJobs.{name}.Disabled": "true" for name in QUEUES}
    assert disabled(off) == QUEUES
    assert fault(PAIR, MIRRORED, second=True, **off) == "" != fault(PAIR, MIRRORED, second=False, **off)


async def test_readyz_of_each_side_shows_the_fault_of_that_side() -> None:
    world = PairWorld()
    await world.open()
    first, second = world.app, world.app.other
    assert second is not None
    first.judge(PAIR, {"AzureWebJobs.fire_shard.Disabled": "true"})
    found = [" ".join((await side.health.check()).wrong) for side in (first, second)]
    assert ["fire_shard" in each for each in found] == [True, False]
    await world.close()


INDEX = """
import json, os, sys
from devhost.worker.library import index
from shared.core.settings import Settings
index(sys.argv[1])
import function_app
from shared.app.given_functions import GivenFunctions
from shared.extras.parts import PARTS
names, environment = function_app.get_app._functions()
names = tuple(names)
newer = {**environment, "TOCSIN_KAFKA_SOURCES": "[]"}
print(json.dumps([GivenFunctions(names, each, PARTS).fault(Settings(), second=False) for each in (environment, newer)]))
"""


@pytest.mark.parametrize("mirror", ["", MIRRORED["mirror"]])
def test_what_the_worker_lists_is_what_the_settings_of_the_same_process_demand(mirror: str) -> None:
    named = {
        "TocsinStorage": SAFE["storage"],
        "TOCSIN_SIGNING_KEY": SAFE["signing_key"],
        "TocsinMirror": mirror,
        "TOCSIN_KAFKA_SOURCES": "",
    }
    command = [sys.executable, "-c", INDEX, str(ROOT)]
    shown = subprocess.run(command, cwd=ROOT, env={**os.environ, **named}, capture_output=True, text=True, check=True)
    as_set, with_sources = json.loads(shown.stdout.splitlines()[-1])
    assert as_set == "" and "ingest_kafka" in with_sources, "the second settings are newer than what was listed"
