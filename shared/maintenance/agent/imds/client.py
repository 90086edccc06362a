"""Client of the Instance Metadata Service (IMDS): Scheduled Events and the identity of the machine.

`document.py` parses the documents. Every outcome of a call is returned as a value.
Source: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events

`Date` of its answers shows how far this machine's clock is from that of the service.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

from ....core.http_exchange import HttpReply, TransportFailure, exchange
from ...not_before import read_time
from ..timings import FIRST_ANSWER, LATER_ANSWER

if TYPE_CHECKING:
    from ....core.clock import Millis


BASE: Final = "http://169.254.169.254"
API_VERSION: Final = "2020-07-01"
INSTANCE_VERSION: Final = "2021-02-01"
_HEADERS: Final = {"Metadata": "true", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine as IMDS describes it. A text is empty if IMDS does not have it."""

    vm: str
    """`compute.name`, by which events name the machine in Resources."""
    location: str = ""
    scope: str = ""
    """Placement group, else scale set, else resource group. Names of machines are unique within it."""
    fault_domain: str = ""
    """In a zone with its number, like `zone2-0`."""
    resource_id: str = ""


class Imds(Protocol):
    """The part of IMDS that the agent needs. Calls block for at most the timeout."""

    def get(self) -> HttpReply | TransportFailure:
        """Return the document of Scheduled Events, unparsed."""

    def approve(self, event_id: str) -> HttpReply | TransportFailure:
        """Approve an event, for all of its resources. This cannot be withdrawn."""

    def machine(self) -> Machine | TransportFailure:
        """Return the identity of this machine."""


class HttpImds:
    """The service at `base`. Timeouts in seconds: `first` until the first 200, `later` after it."""

    def __init__(
        self,
        base: str = BASE,
        *,
        api_version: str = API_VERSION,
        first: float = FIRST_ANSWER,
        later: float = LATER_ANSWER,
        ask: Callable[..., HttpReply | TransportFailure] = exchange,
    ) -> None:
        self._events = f"{base.rstrip('/')}/metadata/scheduledevents?{urlencode({'api-version': api_version})}"
        self._instance = f"{base.rstrip('/')}/metadata/instance/compute?{urlencode({'api-version': INSTANCE_VERSION, 'format': 'json'})}"
        self._first, self._later, self._ask = first, later, ask
        self._answered = False

    def get(self) -> HttpReply | TransportFailure:
        answer = self._ask("GET", self._events, headers=_HEADERS, timeout=self._later if self._answered else self._first)
        if isinstance(answer, HttpReply) and answer.status == 200:
            self._answered = True
        return answer

    def approve(self, event_id: str) -> HttpReply | TransportFailure:
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        headers = {**_HEADERS, "Content-Type": "application/json"}
        return self._ask("POST", self._events, headers=headers, body=body, timeout=self._later)

    def machine(self) -> Machine | TransportFailure:
        answer = self._ask("GET", self._instance, headers=_HEADERS, timeout=self._later)
        return answer if isinstance(answer, TransportFailure) else read_machine(answer)


def read_machine(answer: HttpReply) -> Machine | TransportFailure:
    """Parse an answer of `/metadata/instance/compute`."""
    if answer.status != 200:
        return TransportFailure(f"status {answer.status}")
    try:
        instance: Any = json.loads(answer.body)
    except ValueError:
        return TransportFailure("not JSON")
    if not isinstance(instance, dict) or not _text(instance, "name"):
        return TransportFailure("no `name` in it")
    scope = _text(instance, "placementGroupId") or _text(instance, "vmScaleSetName") or _text(instance, "resourceGroupName")
    return Machine(_text(instance, "name"), _text(instance, "location"), scope, _fault_domain(instance), _text(instance, "resourceId"))


def _fault_domain(instance: dict[str, Any]) -> str:
    """Return the fault domain. Each availability zone numbers its own, so the number alone does not distinguish two zones."""
    zone, number = _text(instance, "zone"), _text(instance, "platformFaultDomain")
    return number if not zone else f"zone{zone}-{number}" if number else f"zone{zone}"


def _text(instance: dict[str, Any], key: str) -> str:
    value = instance.get(key)
    return value if isinstance(value, str) else ""


_STEP = 1000
"""`Date` has whole seconds, so the service's clock may have been this much later, in milliseconds."""


def clock_error(date: str | None, sent: Millis, received: Millis) -> float | None:
    """Return the seconds by which this machine's clock is at least ahead of the service's; negative if it is behind.

    0 while it may be right: the answer was made at an unknown moment between `sent` and `received`. None if `date` cannot be read.
    """
    service_time = read_time(date)
    if service_time is None:
        return None
    least, most = sent - service_time - _STEP, received - service_time
    return (least if least > 0 else min(most, 0)) / 1000
