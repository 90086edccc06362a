"""The devhost as a process that exports: an OTLP collector gets one event's trace as one tree, and log lines with their action."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.unit.ops.export.collector import Collector, attributes

from .conftest import System, Tenant, eventually, now_ms, text_of
from .receiver import status

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """The collector to which the devhost of this module sends."""
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def environment(collector: Collector) -> dict[str, str]:
    """Settings of the module's devhost."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BLRP_SCHEDULE_DELAY": "200"}


async def test_collector_gets_one_tree_from_the_request_to_both_attempts_and_the_receiver_is_its_next_branch(
    collector: Collector, system: System, tenant: Tenant
) -> None:
    tenant.receiver.script(tenant.path, status(503, retry_after="1"), status(204))
    answer = await tenant.api.post("events", {"delay": "PT1S", "payload": 1}, traceparent=f"00-{TRACE}-{CALLER}-01")
    made = answer.json()["id"]
    await tenant.api.ended(made, "delivered")
    await eventually(lambda: len(mine(collector, made)) == 2, "spans of both attempts")
    first, second = mine(collector, made)
    links = {link.span_id for span in (first, second) for link in span.links}

    def served() -> bool:
        return {span.span_id for span in collector.named("serve shard")} >= links

    assert links
    await eventually(served, "spans of the work on the shard, which last as long as that")
    [request] = [span for span in collector.named("POST /api/v1/events") if span.trace_id.hex() == TRACE]
    assert request.parent_span_id.hex() == CALLER and attributes(request)["http.response.status_code"] == 201
    assert {(span.trace_id.hex(), span.parent_span_id) for span in (first, second)} == {(TRACE, request.span_id)}
    assert [attributes(span)["tocsin.outcome"] for span in (first, second)] == ["retry", "delivered"]
    got = [hit.headers["traceparent"] for hit in tenant.by_id()[made]]
    assert got == [f"00-{TRACE}-{span.span_id.hex()}-01" for span in (first, second)]
    assert collector.services == {"tocsin"}


def mine(collector: Collector, event: str) -> list:  # type: ignore[type-arg]
    """The event's attempts, in order."""
    spans = [span for span in collector.named("deliver") if attributes(span)["tocsin.event"] == event]
    return sorted(spans, key=lambda span: attributes(span)["tocsin.attempt"])


async def test_log_lines_come_with_their_action(collector: Collector, tenant: Tenant) -> None:
    answer = await tenant.admin.call("POST", f"tenants/{tenant.name}/channels/default/pause")
    assert answer.status < 300
    await tenant.admin.call("POST", f"tenants/{tenant.name}/channels/default/resume")

    def resumption_lines() -> list[str]:
        return [line.body.string_value for line in list(collector.logs) if attributes(line).get("tenant") == tenant.name]

    assert await eventually(resumption_lines, "a line about the channel that was resumed")
    [line] = [line for line in collector.logs if attributes(line).get("tenant") == tenant.name][:1]
    assert attributes(line)["action"] == "shards_recalled" and line.severity_text == "INFO"


async def test_a_line_after_the_answer_comes_once_and_not_by_the_host(collector: Collector, system: System, tenant: Tenant) -> None:
    await tenant.channel("nowhere", type="http", url="http://127.0.0.1:9/")
    for number in range(12):
        await tenant.api.create(delay="PT0S", channel="nowhere", payload=number)
    wanted = f"The breaker of {tenant.name}/nowhere opens"

    def exported() -> list[str]:
        return [line.body.string_value for line in list(collector.logs) if line.body.string_value.startswith(wanted)]

    await eventually(exported, "the line about the breaker")
    # A later line has come too, so a second copy would be here.
    for change in ("pause", "resume"):
        await tenant.admin.call("POST", f"tenants/{tenant.name}/channels/default/{change}")
    later = f"shards of {tenant.name} were woken"
    await eventually(lambda: any(later in line.body.string_value for line in list(collector.logs)), "a later line")
    assert len(exported()) == 1
    assert wanted not in system.host.text and later not in system.host.text


async def test_an_event_that_another_process_fires_stays_in_the_trace_of_its_request(
    collector: Collector, system: System, tenant: Tenant
) -> None:
    trace = TRACE[::-1]
    made = (await tenant.api.post("events", {"delay": "PT1H", "payload": 1}, traceparent=f"00-{trace}-{CALLER}-01")).json()["id"]
    requests = await eventually(lambda: [span for span in collector.named("POST") if span.trace_id.hex() == trace], "the request's span")
    assert system.host.terminate() == 0
    # The loop goes on meanwhile, and forgets the connection that was closed.
    await asyncio.to_thread(system.host.start)
    assert (await tenant.api.call("PATCH", f"events/{made}", {"due": text_of(now_ms())})).status == 200
    await tenant.api.ended(made, "delivered")
    await eventually(lambda: mine(collector, made), "the attempt's span")
    [attempt] = mine(collector, made)
    assert (attempt.trace_id.hex(), attempt.parent_span_id) == (trace, requests[0].span_id)


@pytest.mark.long
async def test_figures_come_once_a_minute(collector: Collector, tenant: Tenant) -> None:
    await eventually(lambda: {"tocsin_events", "tocsin_ledger_gap"} <= {each.name for each in collector.metrics}, "figures", deadline=180)
