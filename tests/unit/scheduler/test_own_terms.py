"""Events with a retry policy, a longest time of an attempt, or an end of their own; and the end that their tenant gives them."""

from __future__ import annotations

from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from tests.texts import assert_text

from .harness import World

URL = "/api/v1/events"
TENANT = "/api/v1/tenants/demo"
CHANNEL = f"{TENANT}/channels/default"
HTTP: dict[str, Any] = {"type": "http", "url": "http://localhost:7072/x"}
PAUSES = {"schedule": ["PT20S", "PT1M"], "within": "PT1H"}
TERMS = {"retry": PAUSES, "timeout": "PT45S"}


def timeouts(world: World) -> list[int | None]:
    return [got.delivery.timeout for got in world.receiver.received]


async def post(world: World, **more: Any) -> Any:
    return await world.demo.post(URL, {"delay": "PT10S", "payload": 1} | more)


async def test_terms_are_shown_and_kept_over_moves_copies_and_redrives_and_every_attempt_has_them(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503)
    made = await post(world, id="one", **TERMS)
    assert made.status == 201 and {name: made.json()[name] for name in TERMS} == TERMS
    moved = await world.demo.patch(f"{URL}/one", {"delay": "PT2M"})
    assert {name: moved.json()[name] for name in TERMS} == TERMS
    await world.run(400)
    dead = await world.demo.event("one")
    assert dead["state"] == "dead" and [each["outcome"] for each in dead["attempts"]] == ["retry"] * 3
    assert (await world.demo.post(f"{URL}/one/redrive")).status < 300
    await world.run(400)
    assert timeouts(world) == [45_000] * 6
    assert {name: (await world.demo.event("one"))[name] for name in TERMS} == TERMS


async def test_fan_outs_fast_events_and_occurrences_have_the_terms(world: World) -> None:
    await world.admin.put(f"{TENANT}/channels/other", HTTP)
    assert (await world.demo.post(URL, {"delay": "PT10S", "payload": 1, "channels": ["default", "other"], **TERMS})).status == 201
    assert (await post(world, durability="fast", **TERMS)).status == 202
    made = await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M", "payload": 2, **TERMS})
    assert made.status == 201 and {name: made.json()[name] for name in TERMS} == TERMS
    await world.run(90)
    assert timeouts(world) == [45_000] * 4
    events = (await world.demo.get(URL, {"limit": "10"})).json()["items"]
    assert [each["retry"] for each in events] == [PAUSES] * len(events) and len(events) >= 4


async def test_a_change_sets_and_takes_away_the_terms(world: World) -> None:
    await post(world, id="one")
    changed = (await world.demo.patch(f"{URL}/one", TERMS)).json()
    assert {name: changed[name] for name in TERMS} == TERMS
    # The new policy replaces all of the former one.
    assert (await world.demo.patch(f"{URL}/one", {"retry": {"attempts": 2}})).json()["retry"] == {"attempts": 2}
    cleared = (await world.demo.patch(f"{URL}/one", {"retry": None, "timeout": None})).json()
    assert not TERMS.keys() & cleared.keys()
    await world.run(30)
    assert timeouts(world) == [None]


async def test_the_last_of_collapsing_events_replaces_the_terms(world: World) -> None:
    await post(world, id="doc", collapse="PT1M", **TERMS)
    assert not TERMS.keys() & (await post(world, id="doc", collapse="PT1M")).json().keys()
    await world.run(20)
    assert timeouts(world) == [None]


async def test_a_longer_policy_of_a_waiting_event_gives_it_the_attempts_that_its_first_one_had_not(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503)
    await post(world, id="one", retry={"schedule": ["PT1M"]})
    await world.run(30)
    assert (await world.demo.event("one"))["state"] == "retrying"
    assert (await world.demo.patch(f"{URL}/one", {"retry": {"schedule": ["PT1M", "PT1M"]}})).status == 200
    await world.run(300)
    assert len((await world.demo.event("one"))["attempts"]) == 3


@pytest.mark.parametrize(("timeout", "text"), [("PT0.099S", "PT0.1S"), ("PT1M0.001S", "PT1M"), (30, "PT30S"), ("P1Y", "")])
async def test_a_timeout_has_the_bounds_of_a_channels_own(world: World, timeout: Any, text: str) -> None:
    for answer in (
        await post(world, timeout=timeout),
        await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M", "payload": 2, "timeout": timeout}),
        await world.demo.patch(f"{URL}/{(await post(world)).json()['id']}", {"timeout": timeout}),
    ):
        [error] = answer.json()["errors"]
        assert (answer.status, error["pointer"]) == (422, "/timeout") and text in error["detail"]
    for least in ("PT0.1S", "PT1M"):
        assert (await post(world, timeout=least)).status == 201


async def test_a_timeout_of_a_channel_without_one_is_refused(world: World) -> None:
    await world.admin.put(f"{TENANT}/channels/queue", {"type": "queue", "queue": "orders"})
    made = await post(world, id="one", timeout="PT5S")
    for answer in (
        await post(world, timeout="PT5S", channel="queue"),
        await world.demo.post(URL, {"delay": "PT10S", "payload": 1, "channels": ["default", "queue"], "timeout": "PT5S"}),
        await world.demo.patch(f"{URL}/{made.json()['id']}", {"channel": "queue"}),
        await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M", "payload": 2, "timeout": "PT5S", "channel": "queue"}),
    ):
        assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/timeout")
        assert_text("delivery.timeout-of-another-kind", answer.json()["errors"][0]["detail"])
    assert (await world.demo.patch(f"{URL}/one", {"channel": "queue", "timeout": None})).status == 200


@pytest.mark.parametrize(("change", "pointer"), [({"timeout": "PT5S"}, "/timeout"), ({"target": {"path": "/x"}}, "/target")])
async def test_terms_that_a_removed_channel_would_have_to_fit_are_refused_by_their_own_name(
    world: World, change: dict[str, Any], pointer: str
) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/x"}
    await world.admin.put(f"{TENANT}/channels/gone", channel)
    await post(world, id="one", channel="gone")
    assert (await world.admin.delete(f"{TENANT}/channels/gone")).status == 204
    answer = await world.demo.patch(f"{URL}/one", change)
    [error] = answer.json()["errors"]
    assert (answer.status, error["pointer"]) == (422, pointer)
    assert "channel gone was removed" in error["detail"] and "name another channel" in error["detail"]
    # Both ways that the answer names, and the terms that need no channel.
    assert (await world.demo.patch(f"{URL}/one", {"timeout": None, "expires": "PT1H"})).status == 200
    assert (await world.demo.patch(f"{URL}/one", change | {"channel": "default"})).status == 200


async def test_an_event_without_an_end_gets_its_tenants_which_null_and_its_own_replace(world: World) -> None:
    await world.admin.put(TENANT, {"expires": "PT1H"})
    assert (await world.admin.get(TENANT)).json()["expires"] == (await world.demo.get("/api/v1/limits")).json()["expires"] == "PT1H"
    first = await post(world, id="one")
    assert first.json()["expires"] == "PT1H" and (await post(world, id="one")).status == 200
    assert (await post(world, expires="PT5M")).json()["expires"] == "PT5M"
    assert "expires" not in (await post(world, expires=None)).json()
    # The time counts from the end of the window, so that no event lapses before its planned time.
    assert (await post(world, flex="PT2H")).json()["expires"] == "PT3H"
    lines = [{"delay": "PT1M", "payload": 1, "id": "in-batch"}, {"delay": "PT1M", "payload": 1, "id": "never", "expires": None}]
    await world.demo.post(URL + "/batch", lines)
    assert (await world.demo.event("in-batch"))["expires"] == "PT1H" and "expires" not in (await world.demo.event("never"))
    assert "expires" not in (await world.demo.patch(f"{URL}/in-batch", {"expires": None})).json()
    fast = (await post(world, durability="fast")).json()["id"]
    # A later default changes no event that is stored, and the same event is still the same.
    await world.admin.put(TENANT, {})
    assert "expires" not in (await world.demo.get("/api/v1/limits")).json()
    assert (await post(world, id="one")).status == 200 and (await world.demo.event("one"))["expires"] == "PT1H"
    await world.run(30)
    assert (await world.demo.event(fast))["expires"] == "PT1H"


async def test_an_event_that_outlives_its_tenants_end_lapses_and_occurrences_and_events_of_the_service_have_none(world: World) -> None:
    await world.admin.put(TENANT, {"expires": "PT1M"})
    await world.admin.post(f"{CHANNEL}/pause")
    await post(world, id="one")
    await world.demo.put("/api/v1/schedules/poll", {"every": "PT1M", "payload": 2})
    await world.demo.post("/api/v1/heartbeats/backup", {"within": "PT10S"})
    await world.run(180)
    states = {each["id"]: each for each in (await world.demo.get(URL)).json()["items"]}
    assert states["one"]["state"] == "lapsed"
    others = [each for name, each in states.items() if name != "one"]
    assert "heartbeat:backup" in states and len(others) > 2 and not any("expires" in each or each["state"] == "lapsed" for each in others)


@pytest.mark.parametrize("expires", ["PT0S", "PT0.5S", 5, "soon"])
async def test_a_tenants_end_of_less_than_a_second_is_refused(world: World, expires: Any) -> None:
    answer = await world.admin.put(TENANT, {"expires": expires})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/expires")
