"""The client asks the metadata service as its documentation wants to be asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.core.http_exchange import HttpReply, TransportFailure
from shared.maintenance.agent.imds.client import HttpImds, Machine, read_machine


class Asked:
    """Stands for the network: answers in turn, notes what was asked."""

    def __init__(self, *answers: HttpReply | TransportFailure) -> None:
        self._answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, method: str, url: str, **more: Any) -> HttpReply | TransportFailure:
        self.calls.append({"method": method, "url": url, **more})
        return self._answers.pop(0)


GOOD = HttpReply(200, b'{"DocumentIncarnation": 1, "Events": []}')
SILENT = TransportFailure("no answer within 125 s", timed_out=True)


def test_first_answer_has_two_minutes_and_later_ones_seconds() -> None:
    asked = Asked(SILENT, HttpReply(500, b""), GOOD, SILENT, GOOD)
    imds = HttpImds(ask=asked)
    for _ in range(5):
        imds.get()
    assert [call["timeout"] for call in asked.calls] == [125, 125, 125, 5, 5]


def test_document_is_asked_for_with_version_and_header() -> None:
    asked = Asked(GOOD)
    assert HttpImds("http://127.0.0.1:9/", api_version="2019-08-01", ask=asked).get() is GOOD
    [call] = asked.calls
    assert call["method"] == "GET" and call["headers"]["Metadata"] == "true"
    assert call["url"] == "http://127.0.0.1:9/metadata/scheduledevents?api-version=2019-08-01"


def test_approval_posts_the_one_event_as_it_was_written() -> None:
    asked = Asked(HttpReply(200, b""))
    HttpImds(ask=asked).approve("C7061BAC-aFDF")
    [call] = asked.calls
    assert (call["method"], json.loads(call["body"])) == ("POST", {"StartRequests": [{"EventId": "C7061BAC-aFDF"}]})
    assert call["url"] == "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
    assert call["headers"]["Metadata"] == "true" and call["timeout"] == 5


def reply(**more: str) -> HttpReply:
    usual = {"name": "vm_3", "location": "westeurope", "platformFaultDomain": "2", "resourceId": "/vm"}
    return HttpReply(200, json.dumps(usual | more).encode())


@pytest.mark.parametrize(
    ("more", "scope"),
    [
        ({"placementGroupId": "f9c", "vmScaleSetName": "ss", "resourceGroupName": "rg"}, "f9c"),
        ({"placementGroupId": "", "vmScaleSetName": "ss", "resourceGroupName": "rg"}, "ss"),
        ({"resourceGroupName": "rg"}, "rg"),
        ({}, ""),
    ],
)
def test_machine_is_shown_with_the_narrowest_scope_there_is(more: dict[str, str], scope: str) -> None:
    asked = Asked(reply(**more))
    assert HttpImds(ask=asked).machine() == Machine("vm_3", "westeurope", scope, "2", "/vm")
    assert asked.calls[0]["url"] == "http://169.254.169.254/metadata/instance/compute?api-version=2021-02-01&format=json"


@pytest.mark.parametrize(
    ("zone", "number", "domain"), [("", "2", "2"), ("1", "0", "zone1-0"), ("3", "0", "zone3-0"), ("2", "", "zone2"), ("", "", "")]
)
def test_machines_of_two_zones_are_in_two_fault_domains(zone: str, number: str, domain: str) -> None:
    """Zones number their fault domains independently: a machine of each zone may be in number 0."""
    machine = HttpImds(ask=Asked(reply(zone=zone, platformFaultDomain=number))).machine()
    assert isinstance(machine, Machine)
    assert machine.fault_domain == domain


@pytest.mark.parametrize(
    "answer",
    [
        HttpReply(404, b'{"name": "a"}'),
        HttpReply(200, b"{"),
        HttpReply(200, b"[]"),
        HttpReply(200, b"{}"),
        HttpReply(200, b'{"name": 7}'),
    ],
)
def test_answer_that_names_no_machine_is_silence(answer: HttpReply) -> None:
    assert isinstance(read_machine(answer), TransportFailure)
