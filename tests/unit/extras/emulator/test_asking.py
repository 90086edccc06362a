"""Answers to a machine: the contract of the metadata service, and its faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.extras.emulator.metadata_service import EVENTS_PATH, ImdsRequest, ask
from shared.extras.emulator.model import World
from tests.unit.extras.emulator.worlds import LATEST, METADATA, START, do, event, get, kinds, on, pass_to, post, read, world

UPDATE = {"name": "update", "vms": ["n1"], "duration": 9}
SCHEDULED = {
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["n1"],
    "NotBefore": "Fri, 15 Jan 2027 08:15:00 GMT",
    "Description": "The host is being updated; the virtual machine is paused meanwhile.",
    "EventSource": "Platform",
    "DurationInSeconds": 9,
}


@pytest.fixture
def there() -> World:
    return on(do(world("n1", "n2"), event=UPDATE))


def test_the_document_lists_events_with_every_member() -> None:
    _, document = read(on(do(world(), event=UPDATE)))
    found = document["Events"][0]
    assert START == 1_800_000_000_000 and len(found.pop("EventId")) == 36
    assert document == {"DocumentIncarnation": 1, "Events": [SCHEDULED]} and found == SCHEDULED


def test_not_before_is_blank_once_started(there: World) -> None:
    _, document = read(pass_to(there, 900))
    assert (document["Events"][0]["EventStatus"], document["Events"][0]["NotBefore"]) == ("Started", "")


@pytest.mark.parametrize(
    ("version", "without"),
    [
        ("2020-07-01", set()),
        ("2019-08-01", {"DurationInSeconds"}),
        ("2019-04-01", {"DurationInSeconds", "EventSource"}),
        ("2019-01-01", {"DurationInSeconds", "EventSource", "Description"}),
        ("2017-11-01", {"DurationInSeconds", "EventSource", "Description"}),
        ("2017-08-01", {"DurationInSeconds", "EventSource", "Description"}),
        ("2017-03-01", {"DurationInSeconds", "EventSource", "Description"}),
    ],
)
def test_older_versions_lack_members(there: World, version: str, without: set[str]) -> None:
    _, document = read(there, query=f"api-version={version}")
    assert set(document["Events"][0]) == {*SCHEDULED, "EventId"} - without


def test_older_versions_do_not_know_later_types() -> None:
    there = on(do(do(world(), event={"vms": ["n1"], "type": "Preempt"}), event={"vms": ["n1"], "type": "Terminate"}))
    listed = {
        version: [each["EventType"] for each in read(there, query=f"api-version={version}")[1]["Events"]]
        for version in ("2017-08-01", "2017-11-01", "2019-01-01")
    }
    assert listed == {"2017-08-01": [], "2017-11-01": ["Preempt"], "2019-01-01": ["Preempt", "Terminate"]}


def test_the_preview_needs_no_header_and_writes_underscores(there: World) -> None:
    _, answer = get(there, query="api-version=2017-03-01", headers={})
    assert json.loads(answer.body)["Events"][0]["Resources"] == ["_n1"]


def test_ids_come_in_the_case_a_machine_is_set_to() -> None:
    there = on(do(world({"name": "n1", "ids": "upper"}, {"name": "n2", "ids": "lower"}), event=UPDATE))
    ids = [read(there, vm)[1]["Events"][0]["EventId"] for vm in ("n1", "n2")]
    assert ids == [ids[1].upper(), ids[0].lower()] and ids[0] != ids[1]
    assert event(post(there, ids[0], vm="n2")[0], "update").approved_by == "n2"


@pytest.mark.parametrize(
    ("method", "path", "query", "headers", "status"),
    [
        ("GET", EVENTS_PATH, LATEST, {}, 400),
        ("GET", EVENTS_PATH, LATEST, {"metadata": "false"}, 400),
        ("POST", EVENTS_PATH, LATEST, {}, 400),
        ("GET", EVENTS_PATH, LATEST, {**METADATA, "x-forwarded-for": "10.0.0.1"}, 400),
        ("GET", EVENTS_PATH, "", METADATA, 400),
        ("GET", EVENTS_PATH, "api-version=2020-07-02", METADATA, 400),
        ("GET", EVENTS_PATH, f"{LATEST}&{LATEST}", METADATA, 400),
        ("GET", "/metadata/scheduledevent", LATEST, METADATA, 404),
        ("GET", "/", LATEST, METADATA, 404),
        ("PUT", EVENTS_PATH, LATEST, METADATA, 405),
        ("DELETE", EVENTS_PATH, LATEST, METADATA, 405),
        ("POST", "/metadata/instance", "api-version=2021-02-01", METADATA, 405),
    ],
)
def test_what_is_not_asked_rightly_is_refused(
    there: World, method: str, path: str, query: str, headers: dict[str, str], status: int
) -> None:
    after, answer = ask(there, "n1", ImdsRequest(method, path, query, headers))
    assert answer.status == status and json.loads(answer.body)["error"]
    assert after.events == there.events and after.log[-1].kind == "refused"


def test_a_wrong_version_is_answered_with_the_newest(there: World) -> None:
    for path, newest in ((EVENTS_PATH, "2020-07-01"), ("/metadata/instance", "2025-04-07")):
        _, answer = get(there, query="api-version=1999-01-01", path=path)
        assert json.loads(answer.body)["newest-versions"][0] == newest


def test_a_refused_request_does_not_switch_the_service_on() -> None:
    assert get(world(), headers={})[0].vms["n1"].on_at is None


def test_the_sixth_request_within_a_second_is_one_too_many_and_each_machine_has_its_own_count() -> None:
    there, statuses = world("n1", "n2"), []
    for _ in range(7):
        there, answer = get(there)
        statuses.append(answer.status)
    assert statuses == [200] * 5 + [429] * 2
    assert get(there, "n2")[1].status == 200
    assert get(pass_to(there, 0.999))[1].status == 429
    assert get(pass_to(there, 1))[1].status == 200


def test_requests_of_all_kinds_share_the_rate() -> None:
    there = world(rate=2)
    there, _ = get(there, path="/metadata/instance", query="api-version=2021-02-01")
    there, _ = get(there, headers={})
    assert get(there)[1].status == 429


@pytest.mark.parametrize("count", [1, 2])
def test_an_approval_is_answered_200_also_the_second_time_and_also_once_started(there: World, count: int) -> None:
    for vm in ("n1", "n2")[:count]:
        there, answer = post(there, event(there, "update").shown.id, vm=vm)
        assert (answer.status, answer.body) == (200, b"")
    assert event(there, "update").approved_by == "n1" and kinds(there, "approved") == ["approved"]
    assert post(pass_to(there, 1), event(there, "update").shown.id)[1].status == 200


def test_what_has_started_is_not_approved_any_more_and_the_answer_is_200(there: World) -> None:
    there, answer = post(pass_to(there, 900), event(there, "update").shown.id)
    assert answer.status == 200 and event(there, "update").approved_at is None and "approved" not in kinds(there)


def test_any_machine_of_the_scope_may_approve_and_no_other() -> None:
    there = on(do(world("n1", "n2", {"name": "x", "scope": "other"}), event=UPDATE))
    wanted = event(there, "update").shown.id
    assert post(there, wanted, vm="n2")[1].status == 200
    after, answer = post(there, wanted, vm="x")
    assert answer.status == 400 and event(after, "update").approved_at is None


def test_an_id_is_taken_in_any_case_and_among_others(there: World) -> None:
    there = do(there, event={"name": "more", "vms": ["n2"]})
    ids = [event(there, name).shown.id for name in ("update", "more")]
    there, answer = post(there, ids[0].upper(), ids[1].lower())
    assert answer.status == 200 and all(event(there, name).approved_at == START for name in ("update", "more"))


@pytest.mark.parametrize("status", [200, 400, 404])
def test_an_unknown_id_is_answered_as_the_scenario_says_and_the_known_ones_are_approved(status: int) -> None:
    there = on(do(world(unknown_event=status), event=UPDATE))
    there, answer = post(there, event(there, "update").shown.id, "C7061BAC-AFDC-4513-B24B-AA5F13A16123")
    assert answer.status == status and event(there, "update").approved_at == START


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b'{"StartRequests": []}',
        b'{"StartRequests": {}}',
        b'{"StartRequests": "x"}',
        b'{"StartRequests": [{}]}',
        b'{"StartRequests": [{"EventId": 1}]}',
        b'{"StartRequests": ["x"]}',
        b'{"StartRequests": null}',
        b"\xff",
        b"[" * 200_000,
    ],
)
def test_a_malformed_approval_is_400_and_approves_nothing(there: World, body: bytes) -> None:
    after, answer = post(there, body=body)
    assert answer.status == 400 and after.events == there.events


def test_an_approval_is_not_taken_back_by_what_comes_later(there: World) -> None:
    there = on(do(there, event={"name": "waits", "vms": ["n1"], "others": "never", "notice": "PT1H"}))
    there, _ = post(there, event(there, "waits").shown.id)
    there = do(there, change={"event": "waits", "notice": "PT2H"})
    assert event(there, "waits").approved_at == START


@pytest.mark.parametrize("status", [400, 404, 405, 410, 429, 500, 502, 503, 504])
def test_every_status_is_to_be_had_on_demand(there: World, status: int) -> None:
    _, answer = get(do(there, fault={"status": status}))
    assert answer.status == status and ("newest-versions" in json.loads(answer.body)) == (status == 400)
    after, answer = post(do(there, fault={"status": status}), event(there, "update").shown.id)
    assert answer.status == status and event(after, "update").approved_at is None


NONSENSE: dict[str, Any] = {
    "empty": b"",
    "null": b"null",
    "list": list,
    "no-events": {"DocumentIncarnation"},
    "events-null": {"DocumentIncarnation", "Events"},
    "events-object": {"DocumentIncarnation", "Events"},
    "text-incarnation": {"DocumentIncarnation", "Events"},
    "no-incarnation": {"Events"},
}


@pytest.mark.parametrize("body", NONSENSE)
def test_bodies_that_mean_nothing_are_to_be_had_on_demand(there: World, body: str) -> None:
    true = read(there)[1]
    answer = get(do(there, fault={"body": body}))[1]
    wanted = NONSENSE[body]
    assert answer.status == 200
    if isinstance(wanted, bytes):
        assert answer.body == wanted
    else:
        found = json.loads(answer.body)
        assert isinstance(found, list) if wanted is list else set(found) == wanted and found != true


def test_a_truncated_document_is_the_beginning_of_the_true_one_and_html_is_no_json(there: World) -> None:
    true = get(there)[1].body
    cut = get(do(there, fault={"body": "truncated"}))[1].body
    assert true.startswith(cut) and 0 < len(cut) < len(true)
    page = get(do(there, fault={"body": "html"}))[1]
    assert page.content_type == "text/html" and page.body.startswith(b"<!DOCTYPE html>")


def test_a_fault_may_say_its_own_text(there: World) -> None:
    assert get(do(there, fault={"text": "hello"}))[1].body == b"hello"
    answer = get(do(there, fault={"text": '{"error": "later"}', "status": 410}))[1]
    assert (answer.status, answer.body) == (410, b'{"error": "later"}')


def test_a_fault_may_only_be_late(there: World) -> None:
    answer = get(do(there, fault={"delay": "PT6S"}))[1]
    assert answer.delay == 6000 and answer.body == get(there)[1].body


def test_a_lost_answer_to_an_approval_may_have_been_applied_or_not(there: World) -> None:
    wanted = event(there, "update").shown.id
    for applied in (False, True):
        after, answer = post(do(there, fault={"on": ["post"], "drop": True, "applied": applied}), wanted)
        assert answer.dropped and (event(after, "update").approved_at is not None) == applied
        assert get(after)[1].status == 200


def test_a_fault_may_be_for_some_machines_and_for_the_instance_s_data(there: World) -> None:
    there = do(there, fault={"on": ["instance"], "vms": ["n2"], "status": 404})
    found = [get(there, vm, "api-version=2021-02-01", path="/metadata/instance")[1].status for vm in ("n1", "n2")]
    assert found == [200, 404] and get(there, "n2")[1].status == 200


def test_garbled_answers_are_not_taken_for_documents_that_were_read(there: World) -> None:
    there = do(there, cancel="update")
    after, _ = get(do(there, fault={"body": "empty"}))
    assert after.vms["n1"].read != after.vms["n1"].incarnation


def test_a_machine_gets_its_own_description_and_its_hostname_is_not_its_name() -> None:
    there = world({"name": "n1", "scope": "set", "fault_domain": 2, "location": "northeurope"})
    _, answer = get(there, query="api-version=2021-02-01", path="/metadata/instance/compute")
    compute = json.loads(answer.body)
    described = [compute[key] for key in ("name", "vmScaleSetName", "platformFaultDomain", "location")]
    assert described == ["n1", "set", "2", "northeurope"] and compute["osProfile"]["computerName"] != "n1"


def test_machines_of_one_scope_share_a_placement_group() -> None:
    there, groups = world("n1", "n2", {"name": "x", "scope": "other"}), []
    for vm in there.vms:
        _, answer = get(there, vm, "api-version=2021-02-01&format=text", path="/metadata/instance/compute/placementGroupId")
        groups.append(answer.body)
    assert groups[0] == groups[1] != groups[2]


@pytest.mark.parametrize(
    ("path", "query", "status", "body"),
    [
        ("/compute/name", "&format=text", 200, b"n1"),
        ("/Compute/Name", "&format=text", 200, b"n1"),
        ("/compute/osProfile/computerName", "&format=text", 200, b"n1-os"),
        ("/compute/name", "", 400, None),
        ("/compute/name", "&format=json", 400, None),
        ("/compute/name/x", "&format=text", 404, None),
        ("/nothing", "", 404, None),
        ("/compute/osProfile", "", 200, b'{"computerName": "n1-os"}'),
    ],
)
def test_parts_of_the_instance_s_data_are_to_be_had_by_path(path: str, query: str, status: int, body: bytes | None) -> None:
    _, answer = get(world(), query=f"api-version=2021-02-01{query}", path=f"/metadata/instance{path}")
    assert answer.status == status and body in (None, answer.body)


def test_what_a_machine_reads_is_logged_once_for_each_incarnation(there: World) -> None:
    there, _ = read(there)
    there, _ = read(do(there, cancel="update"))
    assert [line.text for line in there.log if line.kind == "read" and line.vm == "n1"] == [
        "incarnation 1, 1 event",
        "incarnation 2, 0 events",
    ]
