"""The real app as the production worker library indexes it: what exists, and what starts it.

An index error makes all functions of an app vanish without a word, so what is there is written down here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from devhost.azurite import ROOT
from shared.scheduler.queue_functions import POISON_ACTS
from shared.storage.names import QUEUE_SWEEPS
from tests import waiting

HTTP = {
    "events_create": ("POST", "v1/events"),
    "events_batch": ("POST", "v1/events/batch"),
    "events_get": ("GET", "v1/events/{id}"),
    "events_list": ("GET", "v1/events"),
    "events_patch": ("PATCH", "v1/events/{id}"),
    "events_delete": ("DELETE", "v1/events/{id}"),
    "events_fire": ("POST", "v1/events/{id}/fire"),
    "events_redrive": ("POST", "v1/events/{id}/redrive"),
    "dead_letters_list": ("GET", "v1/dead-letters"),
    "dead_letters_redrive": ("POST", "v1/dead-letters/redrive"),
    "stats": ("GET", "v1/stats"),
    "work_complete": ("POST", "v1/work/{tenant}/{place}/{attempt}/complete"),
    "work_fail": ("POST", "v1/work/{tenant}/{place}/{attempt}/fail"),
    "work_heartbeat": ("POST", "v1/work/{tenant}/{place}/{attempt}/heartbeat"),
    "schedules_put": ("PUT", "v1/schedules/{id}"),
    "schedules_get": ("GET", "v1/schedules/{id}"),
    "schedules_delete": ("DELETE", "v1/schedules/{id}"),
    "schedules_list": ("GET", "v1/schedules"),
    "schedules_pause": ("POST", "v1/schedules/{id}/pause"),
    "schedules_resume": ("POST", "v1/schedules/{id}/resume"),
    "schedules_trigger": ("POST", "v1/schedules/{id}/trigger"),
    "schedules_preview": ("GET", "v1/schedules/{id}/preview"),
    "schedules_preview_rule": ("POST", "v1/schedules/preview"),
    "load": ("GET", "v1/load"),
    "history": ("GET", "v1/history"),
    "dashboard": ("GET", "dashboard"),
    "dashboard_asset": ("GET", "dashboard/{asset}"),
    "metrics": ("GET", "metrics"),
    "storage_get": ("GET", "v1/storage"),
    "storage_failover": ("POST", "v1/storage/failover"),
    "storage_failback": ("POST", "v1/storage/failback"),
    "jobs_create": ("POST", "v1/jobs"),
    "jobs_list": ("GET", "v1/jobs"),
    "jobs_get": ("GET", "v1/jobs/{id}"),
    "jobs_confirm": ("POST", "v1/jobs/{id}/confirm"),
    "jobs_cancel": ("POST", "v1/jobs/{id}/cancel"),
    "rejects_list": ("GET", "v1/rejects"),
    "rejects_delete": ("DELETE", "v1/rejects/{id}"),
    "tenants_put": ("PUT", "v1/tenants/{tenant}"),
    "tenants_get": ("GET", "v1/tenants/{tenant}"),
    "tenants_delete": ("DELETE", "v1/tenants/{tenant}"),
    "tenants_list": ("GET", "v1/tenants"),
    "keys_create": ("POST", "v1/tenants/{tenant}/keys"),
    "keys_list": ("GET", "v1/tenants/{tenant}/keys"),
    "key_get": ("GET", "v1/key"),
    "keys_delete": ("DELETE", "v1/tenants/{tenant}/keys/{prefix}"),
    "channels_put": ("PUT", "v1/tenants/{tenant}/channels/{name}"),
    "channels_get": ("GET", "v1/tenants/{tenant}/channels/{name}"),
    "channels_delete": ("DELETE", "v1/tenants/{tenant}/channels/{name}"),
    "channels_list": ("GET", "v1/tenants/{tenant}/channels"),
    "channels_rotate": ("POST", "v1/tenants/{tenant}/channels/{name}/secret/rotate"),
    "channels_pause": ("POST", "v1/tenants/{tenant}/channels/{name}/pause"),
    "channels_resume": ("POST", "v1/tenants/{tenant}/channels/{name}/resume"),
    "healthz": ("GET", "healthz"),
    "readyz": ("GET", "readyz"),
    "openapi_json": ("GET", "openapi.json"),
}
QUEUES = {
    "fire_shard": "tocsin-shards",
    "fire_retry": "tocsin-retries",
    "ingest_events": "tocsin-ingest",
    "sweep_soon": "tocsin-sweeps",
}
TIMERS = {"sweep": "0 * * * * *"}

# What api.md names and other parts of the house add.
MORE_ROUTES = re.compile(
    r"v1/(fleets|fleet-overview|tenant-overview|locks|schedules|calendars|heartbeats|limits|load|storage|audit)(/.*)?|bigben/.*|dashboard|metrics"
)

type Functions = dict[str, list[dict[str, Any]]]


def indexed(**more: str) -> Functions:
    """Name -> bindings. In a process of its own: one process indexes one app, once."""
    imports = "import json, sys; from devhost.worker.library import index"
    script = f"{imports}; print(json.dumps({{f.name: f.bindings for f in index(sys.argv[1])}}))"
    command = [sys.executable, "-c", script, str(ROOT)]
    result = waiting.run(command, cwd=ROOT, env={**os.environ, **more})
    assert result.returncode == 0, result.stderr
    found: Functions = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def functions() -> Functions:
    return indexed()


def of_type(functions: Functions, kind: str) -> dict[str, dict[str, Any]]:
    """Function name -> its trigger, of those that have a trigger of this type."""
    return {name: binding for name, bindings in functions.items() for binding in bindings if binding["type"] == kind}


def test_http_functions_have_their_routes_and_methods(functions: Functions) -> None:
    found = of_type(functions, "httpTrigger")
    assert {name: (*found[name]["methods"], found[name]["route"]) for name in HTTP if name in found} == HTTP
    strange = {name: trigger["route"] for name, trigger in found.items() if name not in HTTP}
    assert [route for route in strange.values() if not MORE_ROUTES.fullmatch(route)] == []


def test_http_functions_are_anonymous_to_the_host_and_answer(functions: Functions) -> None:
    for name, trigger in of_type(functions, "httpTrigger").items():
        assert trigger["authLevel"] == "ANONYMOUS", f"{name}: our own keys tell tenants apart, the host's cannot"
        assert len(trigger["methods"]) == 1
        assert [binding["type"] for binding in functions[name] if binding["direction"] == "OUT"] == ["http"]


def test_queue_functions_listen_to_their_queues_with_the_apps_own_connection(functions: Functions) -> None:
    found = of_type(functions, "queueTrigger")
    queues = {name: trigger["queueName"] for name, trigger in found.items()}
    assert queues == QUEUES
    assert {trigger["connection"] for trigger in found.values()} == {"TocsinStorage"}
    assert {trigger["dataType"] for trigger in found.values()} == {"BINARY"}, "the host cannot bind what is not UTF-8 to text"


def test_no_function_listens_to_a_poison_queue_and_the_sweep_takes_what_is_in_each(functions: Functions) -> None:
    queues = {trigger["queueName"] for trigger in of_type(functions, "queueTrigger").values()}
    assert not any(queue.endswith("-poison") for queue in queues), "each would be a group of its own, with its own polls"
    assert {*(queue for queue, _ in POISON_ACTS), f"{QUEUE_SWEEPS}-poison"} == {f"{queue}-poison" for queue in queues}


def test_a_host_that_starts_after_the_tick_makes_up_for_it(functions: Functions) -> None:
    assert all(trigger["useMonitor"] for trigger in of_type(functions, "timerTrigger").values())


def test_timers_have_their_schedules_and_never_run_at_the_start(functions: Functions) -> None:
    found = of_type(functions, "timerTrigger")
    schedules = {name: trigger["schedule"] for name, trigger in found.items()}
    assert schedules == TIMERS
    assert not any(trigger["runOnStartup"] for trigger in found.values())


def test_kafka_sources_add_their_timer_even_when_the_setting_is_wrong(functions: Functions) -> None:
    found = indexed(TOCSIN_KAFKA_SOURCES="not even json")
    assert set(found) - set(functions) == {"ingest_kafka"}
    assert of_type(found, "timerTrigger")["ingest_kafka"]["schedule"] == "0,30 * * * * *"


def test_second_account_adds_its_own_queue_functions(functions: Functions) -> None:
    for setting in ("TocsinMirror", "TocsinMirror__queueServiceUri"):
        found = indexed(**{setting: "https://only-looked-at"})
        added = {name: trigger for name, trigger in of_type(found, "queueTrigger").items() if name not in functions}
        queues = {name: trigger["queueName"] for name, trigger in added.items()}
        assert queues == {f"{name}_second": queue for name, queue in QUEUES.items()}
        assert {trigger["connection"] for trigger in added.values()} == {"TocsinMirror"}
        assert set(found) - set(functions) == set(added)


INDEX_AND_CALL = """
import asyncio, json, sys
from devhost.worker.library import index

def shown():
    wanted = ("google.protobuf", "grpc", "opentelemetry.sdk", "opentelemetry.exporter", "azure.monitor")
    return sorted(each for each in sys.modules if each.startswith(wanted))

index(sys.argv[1])
indexed = shown()
import function_app
asyncio.run(function_app.exporting.started())
print(json.dumps([indexed, shown()]))
"""


def test_indexing_imports_neither_protobuf_nor_grpc_although_telemetry_is_exported() -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=11111111-2222-3333-4444-555555555555",
        "TOCSIN_KAFKA_SOURCES": "[]",
        "TocsinMirror__queueServiceUri": "https://only-looked-at",
    }
    command = [sys.executable, "-c", INDEX_AND_CALL, str(ROOT)]
    result = waiting.run(command, cwd=ROOT, env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr
    while_indexed, after_a_call = json.loads(result.stdout.splitlines()[-1])
    assert while_indexed == []
    assert {"google.protobuf", "opentelemetry.sdk", "azure.monitor.opentelemetry.exporter"} <= set(after_a_call)


def test_every_function_is_started_by_http_a_queue_or_a_timer(functions: Functions) -> None:
    kinds = ("httpTrigger", "queueTrigger", "timerTrigger")
    assert set().union(*(of_type(functions, kind) for kind in kinds)) == set(functions)


def test_names_are_lower_case_and_no_route_is_the_hosts_own(functions: Functions) -> None:
    assert [name for name in functions if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []
    routes = [trigger["route"] for trigger in of_type(functions, "httpTrigger").values()]
    assert [route for route in routes if re.match(r"/?(admin|runtime)", route, re.IGNORECASE)] == []


def test_function_app_holds_no_logic() -> None:
    assert len((ROOT / "function_app.py").read_text().splitlines()) < 80


def test_the_garbage_collector_skips_what_lives_as_long_as_the_process() -> None:
    program = "import gc, function_app; print(gc.get_freeze_count(), len(gc.get_objects()))"
    shown = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    frozen, left = map(int, shown.stdout.split())
    assert frozen > 10_000 and left < frozen // 10
