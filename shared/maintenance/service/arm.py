"""Sends approvals through Azure Resource Manager, by the acknowledge call of its Maintenance provider; also works if the VM itself
hangs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from ...core.errors import TocsinError
from ...core.http_exchange import TransportFailure, exchange
from ..decisions.approvals import ApprovalOutcome

log = logging.getLogger(__name__)

ENDPOINT: Final = "https://management.azure.com"
TIMEOUT: Final = 15.0
"""Seconds that one call may take."""
_LONGEST_ANSWER: Final = 1_048_576
"""Largest body in bytes that is accepted."""
_RESOURCE = re.compile(
    r"/subscriptions/[A-Za-z0-9-]{1,64}/resourceGroups/[\w().-]{0,89}[\w()-]/providers/Microsoft\.Compute/"
    r"(?:virtualMachines|virtualMachineScaleSets|availabilitySets)/[A-Za-z0-9_.-]{1,80}(?:/virtualMachines/[A-Za-z0-9_.-]{1,80})?",
    re.IGNORECASE,
)
_EVENT = re.compile(r"[A-Za-z0-9-]{1,64}")
_GONE: Final = "InvalidScheduledEventId"
"""The code of a 404 for an event that is over. Any other 404 is about the resource or the provider."""
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,80}")

type TokenSource = Callable[[], Awaitable[str]]


class Acknowledged(NamedTuple):
    """The result of an approval."""

    outcome: ApprovalOutcome
    http_status: int


class Acknowledge(Protocol):
    """Sends an approval to Azure."""

    async def __call__(self, resource_id: str, event_id: str) -> Acknowledged:
        """Acknowledge an event that names the resource. Network errors and refusals are returned, never raised."""


class NoApproval(TocsinError):
    """The event cannot be acknowledged; the message has the reason."""


def url_of(resource_id: str, event_id: str, api_version: str, endpoint: str = ENDPOINT) -> str:
    """Return the URL that acknowledges an event. Raises `NoApproval` unless both ids are valid, so that no other resource is ever
    called. Source: ScheduledEvents_Acknowledge in Azure's API definitions of Microsoft.Maintenance, version 2025-11-01.
    """
    if not _RESOURCE.fullmatch(resource_id):
        raise NoApproval("resource_id is not the Azure resource id of a VM, scale set or availability set")
    if not _EVENT.fullmatch(event_id):
        raise NoApproval("the event id is not one that Azure assigns")
    # The event of a scale set's instance is acknowledged on the set.
    of = re.sub(r"(?i)(/virtualMachineScaleSets/[^/]+)/virtualMachines/[^/]+$", r"\1", resource_id)
    # The name of a resource group may have letters of any language.
    path = quote(of, safe="/()")
    return f"{endpoint}{path}/providers/Microsoft.Maintenance/scheduledevents/{event_id}/acknowledge?api-version={api_version}"


def code_of(body: bytes) -> str:
    """Return the code of an error of Azure Resource Manager, such as `InvalidApiVersionParameter`; "" if the body has none."""
    try:
        code = json.loads(body)["error"]["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


class ArmClient:
    """Calls Azure Resource Manager, in threads, because it does so rarely. One per process; creates its credential when first needed.
    Belongs to one event loop.
    """

    def __init__(self, client_id: str | None, api_version: str, *, endpoint: str = ENDPOINT, token: TokenSource | None = None) -> None:
        self._client_id, self._api_version, self._endpoint, self._token = client_id, api_version, endpoint, token
        self._credential: Any = None

    async def __call__(self, resource_id: str, event_id: str) -> Acknowledged:
        """See `Acknowledge`."""
        try:
            url = url_of(resource_id, event_id, self._api_version, self._endpoint)
        except NoApproval as error:
            extra = {"action": "maintenance_arm_unfit", "event_id": event_id}
            log.warning("An approval cannot go to Azure Resource Manager: %s", error, extra=extra)
            return Acknowledged("refused", 0)
        try:
            headers = {"authorization": f"Bearer {await self._authorize()}"}
        except OSError as error:
            return self._away(event_id, str(error))
        answer = await asyncio.to_thread(exchange, "POST", url, headers=headers, timeout=TIMEOUT, largest=_LONGEST_ANSWER)
        if isinstance(answer, TransportFailure):
            return self._away(event_id, answer.reason)
        code = code_of(answer.body)
        found = _judged(answer.status, code)
        if found.outcome == "refused":
            self._warn(event_id, answer.status, code)
        return found

    def _away(self, event_id: str, why: str) -> Acknowledged:
        extra = {"action": "maintenance_arm_away", "event_id": event_id}
        log.warning("Azure Resource Manager cannot be reached: %s", why, extra=extra)
        return Acknowledged("unreachable", 0)

    def _warn(self, event_id: str, status: int, code: str) -> None:
        """Say why Azure refuses. A version that is no longer served, or a role that is missing, concerns every approval."""
        log.warning(
            "Azure Resource Manager refused an approval: %d %s, api-version %s. Check the role of the app's identity (403), "
            "TOCSIN_ARM_API_VERSION (400) or the node's resource id (404)",
            status,
            code or "without a code",
            self._api_version,
            extra={
                "action": "maintenance_arm_refused",
                "event_id": event_id,
                "http_status": status,
                "code": code,
                "api_version": self._api_version,
            },
        )

    async def close(self) -> None:
        """Release connections."""
        if self._credential is not None:
            await self._credential.close()

    async def _authorize(self) -> str:
        if self._token is not None:
            return await self._token()
        from azure.core.exceptions import AzureError

        if self._credential is None:
            # Imported here, because it takes half a second that only fleets with this transport need.
            from azure.identity.aio import DefaultAzureCredential

            self._credential = DefaultAzureCredential(managed_identity_client_id=self._client_id)
        try:
            return str((await self._credential.get_token(f"{self._endpoint}/.default")).token)
        except AzureError as error:
            # The error's message may name credentials that were tried. Its type is enough.
            raise OSError(f"no token: {type(error).__name__}") from None


def _judged(status: int, code: str) -> Acknowledged:
    if 200 <= status < 300:
        return Acknowledged("posted", status)
    if status == 410 or (status == 404 and code == _GONE):
        return Acknowledged("gone", status)
    if status in (408, 425, 429) or status >= 500:
        return Acknowledged("unreachable", status)
    return Acknowledged("refused", status)
