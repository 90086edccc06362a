"""From a POST to a signed delivery and a final state."""

from __future__ import annotations

import json

from prometheus_client.parser import text_string_to_metric_families
from standardwebhooks import Webhook

from .conftest import ADMIN_KEY, Api, System, Tenant, eventually, millis_of, now_ms, text_of


async def test_event_is_delivered_on_time_signed_and_ends_delivered(tenant: Tenant) -> None:
    secret = await tenant.channel("signed", "/signed")
    due = now_ms() + 1_500
    payload = {"order": 17, "text": "Grüße \U0001f514", "big": 12345678901234567890, "float": 1.10}
    raw = json.dumps({"due": text_of(due), "channel": "signed", "labels": {"kind": "first"}, "payload": payload}, ensure_ascii=False)
    answer = await tenant.api.post("events", raw.encode())
    assert answer.status == 201
    event = answer.json()
    assert answer.headers["location"] == f"/api/v1/events/{event['id']}" and answer.headers["etag"]
    assert (event["state"], event["due"], event["attempts"], event["tenant"]) == ("scheduled", text_of(due), [], tenant.name)

    done = await tenant.api.ended(event["id"], "delivered")
    [hit] = tenant.receiver.at("/signed")
    assert hit.at >= due
    assert Webhook(secret).verify(hit.body, dict(hit.headers)) == payload
    assert hit.body in raw.encode(), "the payload is delivered byte for byte"
    fired = millis_of(hit.headers["ce-tocsinfired"])
    expected = {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-type": "tocsin.event.due",
        "ce-id": event["id"],
        "ce-source": f"/tenants/{tenant.name}/channels/signed",
        "ce-tocsindue": text_of(due),
        "ce-tocsinlatems": str(fired - due),
        "ce-tocsinattempt": "1",
        "webhook-id": event["id"],
        "webhook-timestamp": str(fired // 1000),
    }
    assert {name: hit.headers[name] for name in expected} == expected
    assert fired >= due

    [attempt] = done["attempts"]
    assert (attempt["outcome"], attempt["status"], attempt["at"]) == ("delivered", 204, hit.headers["ce-tocsinfired"])
    assert done["late_ms"] == hit.late_ms and millis_of(done["delivered_at"]) >= fired
    assert (done["payload"], done["labels"]) == (payload, {"kind": "first"})


async def test_event_with_a_target_is_delivered_below_its_channels_path(tenant: Tenant) -> None:
    secret = await tenant.channel("aimed", "/aimed")
    target = {"path": "/orders/17", "query": {"a": "b c"}, "method": "PUT", "headers": {"X-Region": "eu"}}
    for wrong in ({"path": "/%2e%2e/x"}, {"path": "/%252f"}, {"headers": {"Authorization": "x"}}, {"method": "GET"}):
        assert (await tenant.api.post("events", {"delay": "PT0S", "channel": "aimed", "payload": 1, "target": wrong})).status == 422, wrong
    await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="aimed", target=target), "delivered")
    [hit] = tenant.receiver.at("/aimed/orders/17")
    assert (hit.query, hit.headers["x-region"]) == ("a=b c", "eu")
    assert Webhook(secret).verify(hit.body, dict(hit.headers)) == {"n": 1}
    assert not tenant.receiver.at("/aimed")


async def test_one_event_to_several_channels_is_delivered_to_each_under_an_id_of_its_own(tenant: Tenant) -> None:
    for name in ("left", "right"):
        await tenant.channel(name, f"/{name}")
    given = {"id": "both", "channels": ["right", "left"], "delay": "PT0S", "payload": {"n": 1}}
    assert [(await tenant.api.post("events", given)).status for _ in range(2)] == [201, 200]
    for name in ("left", "right"):
        await tenant.api.ended(f"both@{name}", "delivered")
        [hit] = tenant.receiver.at(f"/{name}")
        assert (hit.headers["webhook-id"], hit.json()) == (f"both@{name}", {"n": 1})
    shown = (await tenant.api.get("events/both")).json()
    assert [event["state"] for event in shown["events"]] == ["delivered", "delivered"]
    assert (await tenant.api.post("events/both/redrive")).json()["changed"] == 0


async def test_wrong_secret_does_not_verify_and_both_do_while_rotating(tenant: Tenant) -> None:
    first = await tenant.channel("turning", "/turning")
    answer = await tenant.admin.post(f"tenants/{tenant.name}/channels/turning/secret/rotate")
    assert answer.status == 200
    second = answer.json()["secret"]
    assert second != first
    await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="turning"), "delivered")
    [hit] = tenant.receiver.at("/turning")
    for secret in (first, second):
        assert Webhook(secret).verify(hit.body, dict(hit.headers)) == {"n": 1}


async def test_local_default_delivers_with_the_sample_key(system: System) -> None:
    async with Api(system.host.url, "local-demo-key") as demo:
        event_id = await demo.create(delay="PT0.5S", payload={"hello": "world"})
        await demo.ended(event_id, "delivered")
    [hit] = [hit for hit in system.receiver.at("/demo") if hit.id == event_id]
    assert hit.json() == {"hello": "world"}


async def test_due_in_the_past_fires_at_once_and_is_late_from_its_acceptance_on(tenant: Tenant) -> None:
    event_id = await tenant.api.create(due="2020-01-01T00:00:00Z")
    done = await tenant.api.ended(event_id, "delivered")
    assert done["late_ms"] == tenant.by_id()[event_id][0].late_ms < 86_400_000


async def test_expired_event_lapses_and_is_not_delivered(tenant: Tenant) -> None:
    event_id = await tenant.api.create(due="2020-01-01T00:00:00Z", expires="PT1S")
    done = await tenant.api.ended(event_id, "lapsed")
    assert done["attempts"] == [] and not tenant.hits


async def test_paused_channel_holds_its_events_until_it_is_resumed(tenant: Tenant) -> None:
    channel = f"tenants/{tenant.name}/channels/default"
    assert (await tenant.admin.post(f"{channel}/pause")).status == 200

    event_id = await tenant.api.create(delay="PT0S")
    await tenant.channel("other", f"{tenant.path}/other")
    await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="other"), "delivered")
    event = await tenant.api.event(event_id)
    assert (event["state"], event["attempts"]) == ("scheduled", []) and not tenant.hits
    assert (await tenant.admin.post(f"{channel}/resume")).status == 200
    await tenant.api.ended(event_id, "delivered")
    [hit] = tenant.hits
    assert hit.attempt == 1


async def test_admin_acts_for_a_tenant_and_others_do_not(system: System, tenant: Tenant) -> None:
    event_id = await tenant.api.create(delay="PT1H")
    assert (await tenant.admin.get(f"events/{event_id}?tenant={tenant.name}")).json()["id"] == event_id
    assert (await tenant.api.get(f"events/{event_id}?tenant=demo")).status == 403
    async with Api(system.host.url, "not-a-key-at-all") as stranger:
        assert (await stranger.get(f"events/{event_id}")).status == 401


async def test_ids_of_another_tenant_are_404_for_every_verb(system: System, tenant: Tenant) -> None:
    ids = [await tenant.api.create(delay="PT1H"), await tenant.api.create(delay="PT1H", id="shared:name")]
    async with system.tenant() as other:
        for event_id in ids:
            assert (await other.api.get(f"events/{event_id}")).code == "not-found"
            assert (await other.api.call("PATCH", f"events/{event_id}", {"delay": "PT0S"})).code == "not-found"
            assert (await other.api.call("DELETE", f"events/{event_id}")).code == "not-found"
            assert (await other.api.post(f"events/{event_id}/fire")).code == "not-found"
            assert (await other.api.post(f"events/{event_id}/redrive")).code == "not-found"
        assert await other.api.all("events") == [] and (await other.api.stats())["open"] == 0
        assert await other.api.create(delay="PT1H", id="shared:name") == "shared:name", "names are per tenant"
    assert {event["state"] for event in await tenant.api.all("events")} == {"scheduled"}


async def test_health_shows_storage_and_timers(system: System) -> None:
    async with Api(system.host.url, ADMIN_KEY) as anyone:
        assert (await anyone.get("/healthz")).status == 200

        async def ticked() -> bool:
            ready = await anyone.get("/readyz")
            assert ready.status == 200 and ready.json()["storage"] == {"reachable": True}
            return ready.json()["timers"]["scheduler_scan"]["age_s"] is not None

        await eventually(ticked, "the first run of scheduler_scan", 150)


async def test_flexible_event_is_traced_and_counted_from_request_to_receiver(tenant: Tenant) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await tenant.channel("traced", "/traced")
    due = now_ms() + 1_000
    body = {"due": text_of(due), "flex": "PT2S", "channel": "traced", "payload": 1}
    event = (await tenant.api.post("events", body, traceparent=trace)).json()
    planned = millis_of(event["planned"])
    assert due <= planned < due + 2_000 and event["due"] == text_of(due)
    done = await tenant.api.ended(event["id"], "delivered")
    [hit] = tenant.receiver.at("/traced")
    assert hit.headers["traceparent"] == trace and hit.headers["ce-tocsindue"] == event["planned"]
    assert hit.at >= planned and (done["due"], done["planned"]) == (event["due"], event["planned"])

    async def counted() -> bool:
        answer = await tenant.admin.get("/metrics")
        assert answer.status == 200
        found = {
            (sample.name, sample.labels.get("tenant"), sample.labels.get("channel")): sample.value
            for family in text_string_to_metric_families(answer.body.decode())
            for sample in family.samples
        }
        return found.get(("tocsin_lateness_seconds_count", tenant.name, "traced")) == 1

    await eventually(counted, "the event to be counted", pause=1.0)
