"""Reading the records of a run."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

from bench.cost import observed
from bench.cost.rules import Invocation

REQUESTS = (
    ("GET /", 400),
    ("POST /devstoreaccount1/$batch", 202),
    ("GET /devstoreaccount1/TocsinEvents(PartitionKey='a',RowKey='b')", 404),
    ("GET /devstoreaccount1/TocsinShards()?$filter=PartitionKey%20eq%20'a'", 200),
    ("POST /devstoreaccount1/tocsin-shards/messages?visibilitytimeout=0&messagettl=-1", 201),
    ("GET /devstoreaccount1/tocsin-shards/messages?numofmessages=16&visibilitytimeout=600", 200),
    ("GET /devstoreaccount1/tocsin-shards/messages?numofmessages=16&visibilitytimeout=600", 200),
    ("GET /devstoreaccount1/tocsin-shards?comp=metadata", 200),
    ("PUT /devstoreaccount1/azure-webjobs-hosts/locks/x?comp=lease", 200),
)
LINES = ["Azurite Table service is successfully listening at http://127.0.0.1:25606"]
LINES += [f'127.0.0.1 - - [23/Nov/2026:15:09:55 +0000] "{request} HTTP/1.1" {status} -' for request, status in REQUESTS]


def test_requests_to_storage_are_counted_by_service_and_the_polls_of_listeners_apart(tmp_path: Path) -> None:
    file = tmp_path / "requests.log"
    file.write_text("\n".join(LINES) + "\n")
    log = observed.StorageLog(file, 16)
    found = log.between(0, log.mark())
    assert (found.table, found.queue, found.polls, found.blob) == (3, 2, {"tocsin-shards": 2}, 1)
    assert found.targets["GET TocsinShards query"] == 1 and found.targets["GET TocsinEvents"] == 1
    assert log.between(log.mark(), log.mark()).table == 0


def test_invocations_failures_and_cold_starts(tmp_path: Path) -> None:
    file = tmp_path / "invocations.jsonl"
    first = {"id": 1, "function": "sweep", "group": "function:sweep", "asked": 10.0, "start": 12.5, "end": 14.0, "ok": True}
    second = {**first, "id": 2, "asked": 20.0, "start": 20.0, "end": 20.5, "ok": False}
    third = {"id": 3, "function": "clean", "group": "function:clean", "asked": 21.0, "start": 21.0}
    lines = ({name: first[name] for name in third}, first, third, second)
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert observed.invocations(file) == [
        Invocation("sweep", "function:sweep", 12.5, 14.0),
        Invocation("clean", "function:clean", 21.0, inf),
        Invocation("sweep", "function:sweep", 20.0, 20.5),
    ]
    assert observed.cold_starts(file) == {"function:sweep": (2.5, 1.5)}
    assert observed.failures(file) == {"sweep": 1}


def test_telemetry_is_counted_by_kind() -> None:
    found = observed.Telemetry()
    spans = [{"data": {"baseType": "RequestData"}}, {"data": {"baseType": "MetricData"}}, {"data": {"baseType": "MetricData"}}]
    assert found.take(json.dumps(spans).encode()) == 3
    assert found.records == {"RequestData": 1, "MetricData": 2}
    assert found.bytes["RequestData"] == len('{"data":{"baseType":"RequestData"}}')


def test_what_azure_stores_of_a_window_has_the_share_of_spans_that_is_traced_and_metrics_in_their_period() -> None:
    found = observed.Telemetry()

    def send(kind: str, time: str, count: int) -> None:
        found.take(json.dumps([{"time": time, "data": {"baseType": kind}}] * count).encode())

    send("MetricData", "08:00", 30)
    send("RequestData", "08:00", 7)
    before = found.bytes.copy()
    send("RequestData", "08:01", 10)
    send("MessageData", "08:01", 1)
    span, line, value = (len(f'{{"time":"08:00","data":{{"baseType":"{kind}"}}}}') for kind in ("RequestData", "MessageData", "MetricData"))
    assert found.stored(before, 60, 0.1) == {"RequestData": span, "MessageData": line, "MetricData": 30 * value // 5}
    send("MetricData", "08:05", 40)
    assert found.stored(before, 600, 0.1)["MetricData"] == 80 * value, "the last export, twice in ten minutes"
