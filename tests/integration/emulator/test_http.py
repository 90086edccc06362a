"""The emulator over real sockets, as agents and tools reach it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from shared.core.clock import SettableClock
from shared.extras.emulator import Emulator, scenario_of
from shared.extras.emulator.http_server import ControlServer, PortTaken

DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"
UPDATE = {"name": "update", "vms": ["n1"], "duration": 9}
VMS = {"vms": [{"name": "n1"}, {"name": "n2"}], "imds": {"rate": 1000}}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(headers={"Metadata": "true"}, trust_env=False, timeout=180) as client:
        yield client


@pytest.fixture
async def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def imds(clock: SettableClock) -> AsyncIterator[Emulator]:
    async with Emulator(scenario_of(VMS), clock=clock) as emulator:
        yield emulator


async def document(http: httpx.AsyncClient, imds: Emulator, vm: str = "n1") -> dict[str, Any]:
    answer = await http.get(imds.url(vm) + DOCUMENT)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_each_machine_has_an_endpoint_of_its_own(http: httpx.AsyncClient, imds: Emulator) -> None:
    for name in ("n1", "n2"):
        answer = await http.get(f"{imds.url(name)}/metadata/instance/compute/name?api-version=2021-02-01&format=text")
        assert answer.text == name


async def test_an_event_is_read_approved_and_started_over_http(http: httpx.AsyncClient, imds: Emulator) -> None:
    imds.do({"event": UPDATE})
    before = await document(http, imds)
    answer = await http.post(imds.url("n2") + DOCUMENT, json={"StartRequests": [{"EventId": before["Events"][0]["EventId"]}]})
    assert (answer.status_code, answer.content) == (200, b"")
    after = await document(http, imds)
    assert after["DocumentIncarnation"] == before["DocumentIncarnation"] + 1 and after["Events"][0]["EventStatus"] == "Started"
    assert imds.event("update").approved_by == "n2"


async def test_time_passes_when_the_test_says_so_and_wakes_what_waits(
    http: httpx.AsyncClient, imds: Emulator, clock: SettableClock
) -> None:
    imds.do({"event": UPDATE})
    waiting = asyncio.create_task(imds.until(lambda world: imds.event("update").started))
    await clock.advance(899)
    assert not waiting.done()
    await clock.advance(1)
    assert (await waiting).events[0].shown.status == "Started"


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
async def test_a_web_page_neither_reads_nor_steps(http: httpx.AsyncClient, imds: Emulator, headers: dict[str, str]) -> None:
    control = ControlServer(imds, 0)
    await control.start()
    try:
        for method, path in (("GET", "/"), ("GET", "/log"), ("POST", "/steps")):
            answer = await http.request(method, control.url + path, headers=headers, content=json.dumps([{"event": UPDATE}]))
            assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    finally:
        await control.close()
    assert not imds.history


async def test_due_steps_happen_without_requests(imds: Emulator, clock: SettableClock) -> None:
    imds.do({"event": UPDATE})
    await clock.advance(900)
    assert [line.kind for line in imds.history] == ["scheduled", "started", "impact-began"]


async def test_a_cut_connection_brings_no_answer_and_the_next_one_does(http: httpx.AsyncClient, imds: Emulator) -> None:
    imds.do({"fault": {"drop": True, "times": 1}})
    with pytest.raises(httpx.TransportError):
        await http.get(imds.url("n1") + DOCUMENT)
    assert (await document(http, imds))["Events"] == []


async def test_a_late_answer_comes_when_its_time_has_come(http: httpx.AsyncClient, imds: Emulator, clock: SettableClock) -> None:
    imds.do({"fault": {"delay": "PT6S", "times": 1}})
    asking = asyncio.create_task(document(http, imds))
    await imds.until(lambda world: world.vms["n1"].requests == 1)
    await clock.advance(5.9)
    assert not asking.done()
    await clock.advance(0.1)
    assert (await asking)["Events"] == []


async def test_every_method_is_answered(http: httpx.AsyncClient, imds: Emulator) -> None:
    statuses = [
        (await http.request(method, imds.url("n1") + DOCUMENT)).status_code for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
    ]
    assert statuses == [405] * 5


async def test_a_body_that_has_no_end_is_400(http: httpx.AsyncClient, imds: Emulator) -> None:
    answer = await http.post(imds.url("n1") + DOCUMENT, content=b" " * (5 * 1024 * 1024))
    assert answer.status_code == 400


async def test_control_shows_the_world(http: httpx.AsyncClient, imds: Emulator) -> None:
    imds.do({"event": UPDATE})
    imds.do({"at": "PT1H", "cancel": "update"})
    imds.do({"fault": {"status": 503, "times": 2}})
    await http.get(imds.url("n2") + DOCUMENT)
    found = (await http.get(imds.control_url)).json()
    assert found["vms"]["n2"]["url"] == imds.url("n2") and found["vms"]["n2"]["requests"] == 1
    shown = found["events"][0]
    assert [shown[key] for key in ("name", "status", "approved", "next")] == ["update", "scheduled", None, shown["not_before"]]
    assert found["faults"] == [{"what": "503 document: get, post of all", "left": 1, "until": None}]
    assert [each["does"] for each in found["planned"]] == ["cancel"]


async def test_control_shows_what_each_machine_has_read_and_which_are_away(http: httpx.AsyncClient, imds: Emulator) -> None:
    await document(http, imds)
    imds.do({"event": {**UPDATE, "notice": "PT0S"}})
    machines = (await http.get(imds.control_url)).json()["vms"]
    assert [(machines[name]["incarnation"], machines[name]["read"], machines[name]["away"]) for name in ("n1", "n2")] == [
        (3, 1, True),
        (1, None, False),
    ]


async def test_control_takes_steps_all_or_none(http: httpx.AsyncClient, imds: Emulator) -> None:
    answer = await http.post(f"{imds.control_url}/steps", json=[{"event": UPDATE}, {"cancel": "update"}])
    assert [line["kind"] for line in answer.json()] == ["scheduled", "cancelled"]
    answer = await http.post(f"{imds.control_url}/steps", json=[{"event": {"vms": ["n2"]}}, {"cancel": "update"}])
    assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
    assert answer.json()["detail"] == "event update is no longer listed" and not imds.world.events


async def test_control_says_where_a_step_is_wrong(http: httpx.AsyncClient, imds: Emulator) -> None:
    answer = await http.post(f"{imds.control_url}/steps", json=[{"clear": {}}, {"cancle": "update"}])
    assert answer.status_code == 422 and answer.json()["errors"] == [{"pointer": "/1/cancle", "detail": "is not a known field"}]
    for body in (b"", b"{", b"null", b"[]"):
        assert (await http.post(f"{imds.control_url}/steps", content=body)).status_code == 422


async def test_the_log_is_to_be_had_from_a_line_on_and_waits_for_what_is_new(http: httpx.AsyncClient, imds: Emulator) -> None:
    imds.do({"event": UPDATE})
    asking = asyncio.create_task(http.get(f"{imds.control_url}/log?after=1&wait=60"))
    await document(http, imds)
    assert [line["kind"] for line in (await asking).json()] in (["on"], ["on", "read"])
    assert (await http.get(f"{imds.control_url}/log?after=99")).json() == []
    for wrong in ("x", "-1", "1.5", "9" * 16, "9" * 400, "9" * 5000, "\u0663"):
        for name in ("after", "wait"):
            answer = await http.get(f"{imds.control_url}/log", params={name: wrong})
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, f"?{name}"), wrong


async def test_the_clock_is_moved_by_control_where_it_stands_still(http: httpx.AsyncClient, imds: Emulator) -> None:
    imds.do({"event": UPDATE})
    now = imds.now()
    assert (await http.post(f"{imds.control_url}/clock", json={"advance": "PT15M"})).status_code == 200
    assert imds.now() == now + 900_000 and imds.event("update").started
    async with Emulator(scenario_of(VMS)) as running:
        answer = await http.post(f"{running.control_url}/clock", json={"advance": "PT15M"})
        assert (answer.status_code, answer.json()["title"]) == (409, "Clock runs")


async def test_what_control_does_not_know_is_a_problem_too(http: httpx.AsyncClient, imds: Emulator) -> None:
    for method, path, status in (("GET", "/x", 404), ("GET", "/steps", 405)):
        answer = await http.request(method, imds.control_url + path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


async def test_a_taken_port_is_reported_and_nothing_is_left_listening(imds: Emulator) -> None:
    port = int(imds.control_url.rpartition(":")[2])
    other = Emulator(scenario_of(VMS), control_port=port)
    with pytest.raises(PortTaken, match=f"cannot listen on 127.0.0.1:{port}"):
        await other.__aenter__()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", int(other.url("n1").rpartition(":")[2]))


async def test_a_running_emulator_that_nobody_asks_does_nothing(imds: Emulator) -> None:
    """Its own looks are no news to itself."""
    imds.do({"event": UPDATE})
    looks = 0

    def done(world: object) -> bool:
        nonlocal looks
        looks += 1
        return False

    with pytest.raises(TimeoutError):
        await imds.until(done, 0.2)
    assert looks < 5


async def test_with_a_clock_that_runs_things_happen_at_their_time(http: httpx.AsyncClient) -> None:
    scenario = {**VMS, "steps": [{"event": {**UPDATE, "notice": "PT15M"}}]}
    async with Emulator(scenario_of(scenario), speed=600) as imds:
        world = await imds.until(lambda world: bool(world.ended))
        assert json.dumps([line.kind for line in imds.history]) == '["scheduled", "started", "impact-began", "impact-ended", "completed"]'
        assert world.ended[0].started_at == world.ended[0].shown.not_before
