"""The Instance Metadata Service as a node reaches it: its Scheduled Events and what it says of the machine itself.

Nothing here judges a document: `document.py` does. Whatever the service does comes back as a value.
Source: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from ..http_exchange import HttpAnswer, TransportFailure, exchange

BASE: Final = "http://169.254.169.254"
API_VERSION: Final = "2020-07-01"
INSTANCE_VERSION: Final = "2021-02-01"
FIRST: Final = 125.0
"""Seconds for the first answer: the service may need two minutes to switch events on for a machine."""
LATER: Final = 5.0
"""Seconds for each answer after a good one."""
_HEADERS: Final = {"Metadata": "true", "Accept": "application/json"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What IMDS tells of this machine. Texts are empty where it tells nothing."""

    vm: str
    """`compute.name`: what Resources of events name, exactly."""
    location: str = ""
    scope: str = ""
    """Placement group, else scale set, else resource group: within it names of machines are unique."""
    fault_domain: str = ""
    resource_id: str = ""


class Imds(Protocol):
    """What the agent asks of the service. Both block for at most the time-out."""

    def get(self) -> HttpAnswer | TransportFailure:
        """The document of Scheduled Events, as it came."""

    def approve(self, event_id: str) -> HttpAnswer | TransportFailure:
        """Approve an event, for all its resources; it cannot be taken back."""

    def machine(self) -> Machine | TransportFailure:
        """Who this machine is."""


class HttpImds:
    """The service at `base`. Time-outs in seconds: `first` until the first 200 came, `later` after it."""

    def __init__(
        self,
        base: str = BASE,
        *,
        api_version: str = API_VERSION,
        first: float = FIRST,
        later: float = LATER,
        ask: Callable[..., HttpAnswer | TransportFailure] = exchange,
    ) -> None:
        self._events = f"{base.rstrip('/')}/metadata/scheduledevents?{urlencode({'api-version': api_version})}"
        self._instance = f"{base.rstrip('/')}/metadata/instance/compute?{urlencode({'api-version': INSTANCE_VERSION, 'format': 'json'})}"
        self._first, self._later, self._ask = first, later, ask
        self._answered = False

    def get(self) -> HttpAnswer | TransportFailure:
        answer = self._ask("GET", self._events, headers=_HEADERS, timeout=self._later if self._answered else self._first)
        if isinstance(answer, HttpAnswer) and answer.status == 200:
            self._answered = True
        return answer

    def approve(self, event_id: str) -> HttpAnswer | TransportFailure:
        body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
        headers = {**_HEADERS, "Content-Type": "application/json"}
        return self._ask("POST", self._events, headers=headers, body=body, timeout=self._later)

    def machine(self) -> Machine | TransportFailure:
        answer = self._ask("GET", self._instance, headers=_HEADERS, timeout=self._later)
        return answer if isinstance(answer, TransportFailure) else read_machine(answer)


def read_machine(answer: HttpAnswer) -> Machine | TransportFailure:
    """The machine that an answer of `/metadata/instance/compute` tells of."""
    if answer.status != 200:
        return TransportFailure(f"status {answer.status}")
    try:
        told: Any = json.loads(answer.body)
    except ValueError:
        return TransportFailure("not JSON")
    if not isinstance(told, dict) or not _text(told, "name"):
        return TransportFailure("no `name` in it")
    scope = _text(told, "placementGroupId") or _text(told, "vmScaleSetName") or _text(told, "resourceGroupName")
    return Machine(_text(told, "name"), _text(told, "location"), scope, _text(told, "platformFaultDomain"), _text(told, "resourceId"))


def _text(told: dict[str, Any], key: str) -> str:
    value = told.get(key)
    return value if isinstance(value, str) else ""
