"""Events with receivers that refuse, stall, break off, ramble or lie."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from azure.storage.queue import QueueClient

from devhost.azurite import free_ports

from ..conftest import System, Tenant, eventually, millis_of
from ..receiver import Reply, after, endless_body, hang_up, huge_headers, silent, slow_body, slow_head, status

QUICK = {"first": "PT0.05S"}


def outcomes(event: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Return the event's attempts as the API shows them."""
    return [(attempt["outcome"], attempt.get("status")) for attempt in event["attempts"]]


@pytest.mark.parametrize("code", [302, 401, 403, 404, 409])
async def test_an_answer_of_a_host_that_starts_or_stops_is_tried_again(tenant: Tenant, code: int) -> None:
    tenant.receiver.script(tenant.path, status(code), status(204))
    event_id = await tenant.api.create(delay="PT0S", retry=QUICK)
    assert outcomes(await tenant.api.ended(event_id, "delivered")) == [("retry", code), ("delivered", 204)]


@pytest.mark.parametrize("code", [400, 410, 422])
async def test_refusal_for_good_ends_in_the_dead_letters_after_one_attempt(tenant: Tenant, code: int) -> None:
    tenant.receiver.script(tenant.path, status(code))
    event_id = await tenant.api.create(delay="PT0S", retry=QUICK)
    event = await tenant.api.ended(event_id, "dead")
    assert outcomes(event) == [("final", code)] and str(code) in event["error"]
    assert event["attempts"][0]["error"] == event["error"]
    assert [dead["id"] for dead in await tenant.api.all("dead-letters")] == [event_id]
    assert len(tenant.hits) == 1


async def test_a_channel_says_which_answers_are_final(tenant: Tenant) -> None:
    channel = f"tenants/{tenant.name}/channels/default"
    url = (await tenant.admin.get(channel)).json()["url"]
    await tenant.admin.call("PUT", channel, {"type": "http", "url": url, "final_statuses": [404]})
    tenant.receiver.script(tenant.path, status(422), status(404))
    event_id = await tenant.api.create(delay="PT0S", retry=QUICK)
    assert outcomes(await tenant.api.ended(event_id, "dead")) == [("retry", 422), ("final", 404)]


async def test_410_for_an_events_own_path_ends_that_event_alone(tenant: Tenant) -> None:
    tenant.receiver.script(f"{tenant.path}/gone/17", status(410))
    event_id = await tenant.api.create(delay="PT0S", target={"path": "/gone/17"})
    await tenant.api.ended(event_id, "dead")
    assert (await tenant.admin.get(f"tenants/{tenant.name}/channels/default")).json()["paused"] is False
    await tenant.api.ended(await tenant.api.create(delay="PT0S"), "delivered")


async def test_event_refused_with_410_is_delivered_after_a_redrive(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(410), status(204))
    event_id = await tenant.api.create(delay="PT0S", payload={"keep": "me"})
    await tenant.api.ended(event_id, "dead")
    channel = f"tenants/{tenant.name}/channels/default"
    assert "410 Gone" in (await tenant.admin.get(channel)).json()["reason"]
    assert (await tenant.admin.post(f"{channel}/resume")).json()["paused"] is False
    answer = await tenant.api.post(f"events/{event_id}/redrive")
    assert answer.status == 202 and answer.json()["id"] == event_id
    event = await tenant.api.in_state(event_id, "delivered")
    assert outcomes(event) == [("final", 410), ("delivered", 204)]
    first, second = tenant.hits
    assert (first.id, first.body) == (second.id, second.body) and first.headers["webhook-id"] == second.headers["webhook-id"]
    assert await tenant.api.all("dead-letters") == []
    assert (await tenant.api.post(f"events/{event_id}/redrive")).code == "not-dead"


@pytest.mark.parametrize("code", [408, 425, 429, 500, 503])
async def test_passing_failure_is_tried_again_with_the_same_id(tenant: Tenant, code: int) -> None:
    tenant.receiver.script(tenant.path, status(code), status(200))
    event_id = await tenant.api.create(delay="PT0S", retry=QUICK)
    event = await tenant.api.ended(event_id, "delivered")
    assert outcomes(event) == [("retry", code), ("delivered", 200)]
    assert [hit.attempt for hit in tenant.hits] == [1, 2] and {hit.id for hit in tenant.hits} == {event_id}
    assert event["late_ms"] == tenant.hits[1].late_ms


async def test_attempts_that_are_used_up_end_in_the_dead_letters(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(500))
    event_id = await tenant.api.create(delay="PT0S", retry={**QUICK, "attempts": 3})
    event = await tenant.api.ended(event_id, "dead")
    assert outcomes(event) == [("retry", 500)] * 3 and "500" in event["error"]
    assert [hit.attempt for hit in tenant.hits] == [1, 2, 3]


async def test_retry_after_is_honoured(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(429, retry_after="6"), status(204))
    event_id = await tenant.api.create(delay="PT0S", retry=QUICK)

    async def failed_once() -> dict[str, Any] | None:
        found = await tenant.api.event(event_id)
        return found if found["attempts"] else None

    # A retry is claimed again some seconds ahead: on a slow machine the test may not see it wait.
    waiting = await eventually(failed_once, "the first attempt")
    event = await tenant.api.ended(event_id, "delivered")
    first, second = tenant.hits
    assert outcomes(event) == [("retry", 429), ("delivered", 204)]
    assert second.at >= first.at + 6_000
    if waiting["state"] == "retrying":
        assert second.at >= millis_of(waiting["next_attempt"]) >= millis_of(event["attempts"][0]["at"]) + 6_000


async def test_retry_after_beyond_the_time_allowed_costs_no_attempt(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(503, retry_after="3600"))
    event_id = await tenant.api.create(delay="PT0S", retry={"schedule": ["PT1S", "PT1S"], "within": "PT8S"})
    event = await tenant.api.ended(event_id, "dead")
    assert outcomes(event) == [("retry", 503)] * 3
    assert re.search(r"; asked to wait 1 h; waits 1\.[0-2] s$", event["attempts"][0]["error"]) and "asked" not in event["error"]


async def test_shard_that_only_waits_for_retries_rests_and_comes_back_through_the_queue_of_retries(system: System, tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(429, retry_after="8"), status(204))
    with QueueClient.from_connection_string(system.azurite.connection_string, "tocsin-retries") as queue:
        event_id = await tenant.api.create(delay="PT0S")

        # The count includes hidden messages, and the one that is being worked on.
        await eventually(lambda: queue.get_queue_properties().approximate_message_count, "a message in tocsin-retries")
        await tenant.api.ended(event_id, "delivered")
        await eventually(lambda: not queue.get_queue_properties().approximate_message_count, "an empty tocsin-retries")
    first, second = tenant.hits
    assert second.at >= first.at + 8_000 and second.attempt == 2


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (silent, "no answer within 1 s"),
        (after(30, status(204)), "no answer within 1 s"),
        (hang_up, "connection"),
    ],
    ids=["silent", "late", "hang-up"],
)
async def test_receiver_that_gives_no_proper_answer_is_tried_again(tenant: Tenant, reply: Reply, error: str) -> None:
    await tenant.channel("odd", f"{tenant.path}/odd", timeout="PT1S")
    # A kept connection that breaks is tried twice in one attempt, so the second reply may belong to the first attempt.
    tenant.receiver.script(f"{tenant.path}/odd", reply, reply, reply, status(204))
    # On a slow machine the good answer may come too late as well, a few times.
    event_id = await tenant.api.create(delay="PT0S", channel="odd", retry={**QUICK, "max": "PT5S", "attempts": 50})
    event = await tenant.api.ended(event_id, "delivered")
    *failed, last = event["attempts"]
    assert last["outcome"] == "delivered" and failed
    assert all(attempt["outcome"] == "retry" and "status" not in attempt for attempt in failed), event
    assert all(error in attempt["error"] or "no answer within 1 s" in attempt["error"] for attempt in failed), event
    assert all(attempt["took_ms"] >= 1_000 for attempt in failed if attempt["error"].startswith("no answer"))


@pytest.mark.parametrize("reply", [slow_body, endless_body])
async def test_status_counts_and_a_body_without_end_is_left(tenant: Tenant, reply: Reply) -> None:
    tenant.receiver.script(tenant.path, reply)
    event_ids = await tenant.api.batch([{"delay": "PT0S", "payload": number} for number in range(20)])
    for event_id in event_ids:
        assert outcomes(await tenant.api.ended(event_id, "delivered")) == [("delivered", 200)]
    assert len(tenant.hits) == 20


@pytest.mark.parametrize("reply", [slow_head, huge_headers])
async def test_a_success_whose_head_does_not_end_is_tried_again(tenant: Tenant, reply: Reply) -> None:
    await tenant.channel("slow", tenant.path, timeout="PT1S")
    tenant.receiver.script(tenant.path, reply, status(204))
    event = await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="slow", retry=QUICK), "delivered")
    assert outcomes(event) == [("retry", None), ("delivered", 204)]


async def test_redirect_is_retried_and_not_followed(tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(307, location=tenant.receiver.url("/elsewhere")), status(204))
    event = await tenant.api.ended(await tenant.api.create(delay="PT0S", retry=QUICK), "delivered")
    assert outcomes(event) == [("retry", 307), ("delivered", 204)] and "redirect" in event["attempts"][0]["error"]
    assert tenant.receiver.at("/elsewhere") == []


async def test_closed_port_is_retried_until_a_receiver_listens(tenant: Tenant) -> None:
    port = free_ports("127.0.0.1", 1)[0]
    await tenant.channel("closed", type="http", url=f"http://127.0.0.1:{port}/hook")
    event_id = await tenant.api.create(delay="PT0S", channel="closed", retry={**QUICK, "attempts": 50})
    event = await tenant.api.in_state(event_id, "retrying")
    assert "could not connect" in event["attempts"][0]["error"]
    spec = {"type": "http", "url": tenant.receiver.url(tenant.path)}
    assert (await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/closed", spec)).status == 200
    await tenant.api.ended(event_id, "delivered")


async def test_event_of_a_channel_that_is_gone_is_dead_and_says_so(tenant: Tenant) -> None:
    await tenant.channel("gone", f"{tenant.path}/gone")
    event_id = await tenant.api.create(delay="PT1H", channel="gone")
    assert (await tenant.admin.call("DELETE", f"tenants/{tenant.name}/channels/gone")).status == 204
    assert (await tenant.api.post(f"events/{event_id}/fire")).status == 202
    event = await tenant.api.ended(event_id, "dead")
    assert "no longer exists" in event["error"] and tenant.receiver.at(f"{tenant.path}/gone") == []


@pytest.mark.parametrize("address", ["http://10.0.0.1/", "http://[::1]/", "http://169.254.169.254/metadata", "ftp://127.0.0.1/"])
async def test_channel_to_an_address_that_is_not_allowed_is_refused(tenant: Tenant, address: str) -> None:
    answer = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/inside", {"type": "http", "url": address})
    assert answer.status == 422 and answer.json()["errors"][0]["pointer"] == "/url"


async def test_errors_and_logs_show_no_secrets(system: System, tenant: Tenant) -> None:
    hidden = ("tok-en-in-query", "pass-in-header", "s3cret-in-path")
    port = free_ports("127.0.0.1", 1)[0]
    whsec = []
    for name, base in {
        "open": tenant.receiver.url(f"{tenant.path}/open"),
        "mute": tenant.receiver.url(f"{tenant.path}/mute"),
        "shut": f"http://127.0.0.1:{port}/shut",
    }.items():
        timeout = "PT0.5S" if name == "mute" else "PT30S"
        spec = {"type": "http", "url": f"{base}/{hidden[2]}?key={hidden[0]}", "headers": {"x-api-key": hidden[1]}, "timeout": timeout}
        whsec.append(await tenant.channel(name, **spec))
    tenant.receiver.script(f"{tenant.path}/open/{hidden[2]}", status(410, x_reason="whsec_aGVsbG8= in an answer"))
    tenant.receiver.script(f"{tenant.path}/mute/{hidden[2]}", silent)
    ids = [await tenant.api.create(delay="PT0S", channel=name, retry={**QUICK, "attempts": 2}) for name in ("open", "mute", "shut")]
    shown = [await tenant.api.ended(event_id, "dead") for event_id in ids]
    [hit] = tenant.receiver.at(f"{tenant.path}/open/{hidden[2]}")
    assert hit.query == f"key={hidden[0]}" and hit.headers["x-api-key"] == hidden[1]
    shown_texts = json.dumps([shown, await tenant.api.all("events"), await tenant.api.all("dead-letters")])
    shown_texts += (await tenant.admin.get(f"tenants/{tenant.name}/channels/open")).json()["headers"]["x-api-key"] + system.host.text
    assert all(event["error"] for event in shown)
    assert [secret for secret in (*hidden[1:], *whsec, "whsec_") if secret in shown_texts] == []
    assert hidden[0] not in shown_texts


async def test_target_that_stalls_does_not_hold_up_another(tenant: Tenant) -> None:
    await tenant.channel("stuck", f"{tenant.path}/stuck", timeout="PT2S")
    tenant.receiver.script(f"{tenant.path}/stuck", silent)
    stuck = await tenant.api.batch([{"delay": "PT0.5S", "payload": n, "channel": "stuck"} for n in range(200)])
    await eventually(lambda: len(tenant.receiver.at(f"{tenant.path}/stuck")) >= 4, "the stalled target at its bound")
    fresh = await tenant.api.batch([{"delay": "PT0S", "payload": n} for n in range(100)])
    await asyncio.gather(*(tenant.api.ended(event_id, "delivered") for event_id in fresh))
    assert tenant.receiver.most_at_once[f"{tenant.path}/stuck"] <= 4, "nobody has heard of it yet"
    states = {(await tenant.api.event(event_id))["state"] for event_id in stuck[-20:]}
    assert not states & {"delivered", "dead"}
    tenant.receiver.script(f"{tenant.path}/stuck", status(204))
