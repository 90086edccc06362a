"""Checks of a channel's settings beyond their shape, and masking of their secrets, for each channel type.

The queue of a channel must exist before the channel is stored: otherwise its events could not be delivered. Only a certain answer counts. A
queue that cannot be reached, or that the service may write to but not read about, is no fault.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable

from yarl import URL

from ..client_certificates.sources import find_listed
from ..egress_guard import Egress, grid_problem
from ..entra import requests
from ..entra.grants import EntraAudience
from ..kafka.connection import Login, problem_of
from ..listed_tenants import TenantIdentity
from ..service_bus import problem_of as bus_problem_of
from .event_target import check_path
from .http import is_ours
from .international_hosts import find_fault
from .model import (
    MASK,
    ChannelSpec,
    EventGridChannel,
    FleetChannel,
    HttpChannel,
    KafkaChannel,
    QueueChannel,
    ServiceBusChannel,
    is_service_queue,
)
from .ports import Sender

log = logging.getLogger(__name__)


ABSENCE_TIMEOUT: Final = 3.0
"""Seconds after which a queue that does not answer counts as existing."""


@runtime_checkable
class AskingSender(Sender, Protocol):
    """A sender that can ask whether a channel's target is there."""

    async def find_absent(self, spec: ChannelSpec) -> Sequence[tuple[str, str]]:
        """Return the faults of a channel whose target is certainly not there, as (pointer, detail)."""


async def find_absent(senders: Mapping[str, Sender], spec: ChannelSpec) -> Sequence[tuple[str, str]]:
    """Return the faults of a channel whose queue is certainly not there, as (pointer, detail)."""
    if not isinstance(spec, QueueChannel) or not isinstance(sender := senders[spec.type], AskingSender):
        return ()
    try:
        async with asyncio.timeout(ABSENCE_TIMEOUT):
            return await sender.find_absent(spec)
    except TimeoutError:
        log.info("The queue of a channel did not answer within %g s", ABSENCE_TIMEOUT, extra={"action": "channel_unasked"})
        return ()


NOBODY = TenantIdentity("", "")
MAX_HEADER_VALUE = 4096
MAX_HEADERS_TOTAL = 16 * 1024
"""Characters of all names and values together, so that a channel fits one property of a row."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_URL = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
"""The characters that RFC 3986 allows in a URL. A backslash, for example, means another host to some parsers."""
_USER = re.compile(r"[^/?#]*//[^/?#]*@")


def is_signed(spec: ChannelSpec) -> bool:
    """Return True if deliveries to the channel are signed, so that it has a webhook secret."""
    return isinstance(spec, HttpChannel | FleetChannel)


def mask_secrets(spec: ChannelSpec) -> ChannelSpec:
    """Return the channel with its secrets masked."""
    if isinstance(spec, HttpChannel | FleetChannel) and spec.headers:
        return spec.model_copy(update={"headers": dict.fromkeys(spec.headers, MASK)})
    if isinstance(spec, KafkaChannel) and spec.password is not None:
        return spec.model_copy(update={"password": MASK})
    if isinstance(spec, ServiceBusChannel) and spec.key is not None:
        return spec.model_copy(update={"key": MASK})
    return spec


def masked_values(spec: ChannelSpec) -> Mapping[str, str]:
    """Return the values that `mask_secrets` masks, by their paths."""
    if isinstance(spec, HttpChannel | FleetChannel):
        return {f"headers.{name}": value for name, value in spec.headers.items()}
    if isinstance(spec, KafkaChannel) and spec.password is not None:
        return {"password": spec.password}
    if isinstance(spec, ServiceBusChannel) and spec.key is not None:
        return {"key": spec.key}
    return {}


def restore_secrets(spec: ChannelSpec, stored: ChannelSpec | None) -> ChannelSpec:
    """Return `spec` with masked headers set to their stored values; headers without one stay masked.

    Secrets stay with the receiver that they were given for: headers with the scheme, host and port of the URL or with the fleet, a password
    with its servers, a key with its name and namespace.
    """
    if isinstance(spec, ServiceBusChannel) and spec.key == MASK:
        kept = isinstance(stored, ServiceBusChannel) and (stored.namespace, stored.key_name) == (spec.namespace, spec.key_name)
        return spec.model_copy(update={"key": stored.key}) if kept and isinstance(stored, ServiceBusChannel) else spec
    if isinstance(spec, KafkaChannel) and spec.password == MASK:
        same = isinstance(stored, KafkaChannel) and (stored.servers, stored.tls) == (spec.servers, spec.tls)
        return spec.model_copy(update={"password": stored.password}) if same and isinstance(stored, KafkaChannel) else spec
    if not isinstance(spec, HttpChannel | FleetChannel) or MASK not in spec.headers.values():
        return spec
    known: Mapping[str, str] = {name.lower(): value for name, value in _headers_to_keep(spec, stored).items()}
    headers = {name: known.get(name.lower(), MASK) if value == MASK else value for name, value in spec.headers.items()}
    return spec.model_copy(update={"headers": headers})


def _headers_to_keep(spec: HttpChannel | FleetChannel, stored: ChannelSpec | None) -> Mapping[str, str]:
    """Return the stored headers if they were given for the same receiver."""
    if isinstance(spec, FleetChannel):
        return stored.headers if isinstance(stored, FleetChannel) and stored.fleet == spec.fleet else {}
    return stored.headers if isinstance(stored, HttpChannel) and _have_same_origin(stored.url, spec.url) else {}


def _have_same_origin(first: str, second: str) -> bool:
    """Return True if two URLs have the same scheme, host and port; False for a malformed one."""
    try:
        a, b = URL(first), URL(second)
        return (a.scheme, (a.host or "").lower(), a.port) == (b.scheme, (b.host or "").lower(), b.port)
    except ValueError:
        return False


def find_faults(
    spec: ChannelSpec,
    egress: Egress,
    own_accounts: frozenset[str] | None = frozenset(),
    tenant: TenantIdentity = NOBODY,
    certificates: Container[tuple[str, str]] = (),
) -> list[tuple[str, str]]:
    """Return the faults of a channel that its model does not find, as (pointer, detail).

    own_accounts: the names of the service's storage accounts; None if they are not known. tenant: the channel's.
    certificates: the client certificates that the operator has listed, as `parse_certificates` returns them.
    """
    if isinstance(spec, HttpChannel):
        found = list(_url_faults("/url", spec.url, egress))
        if not found and spec.entra_audience is not None:
            found = list(requests.channel_faults(spec.entra_audience, URL(spec.url, encoded=True), spec.headers))
        return [*found, *_header_faults(spec.headers), *_certificate_faults(tenant, spec, certificates)]
    if isinstance(spec, FleetChannel):
        return [*_path_faults(spec.path), *_header_faults(spec.headers)]
    if isinstance(spec, EventGridChannel):
        found = list(_url_faults("/endpoint", spec.endpoint, egress))
        if not found and not spec.endpoint.startswith("https://"):
            found = [("/endpoint", "must be an https address, such as https://my-topic.westeurope-1.eventgrid.azure.net/api/events")]
        if not found and (problem := grid_problem(spec.endpoint, egress)):
            found = [("/endpoint", problem)]
        return found
    if isinstance(spec, KafkaChannel):
        if spec.password == MASK:
            return [("/password", "is ***, which keeps the stored password, but none is stored for these servers; send the password")]
        problem_there = problem_of(Login(spec.servers, spec.tls, spec.username, spec.password), egress)
        return [(f"/{problem_there[0]}", problem_there[1])] if problem_there else []
    if isinstance(spec, ServiceBusChannel):
        if spec.key == MASK:
            return [("/key", "is ***, which keeps the stored key, but none is stored for this namespace and name; send the key")]
        found_there = bus_problem_of(tenant, spec.namespace, egress, keyed=spec.key is not None)
        return [("/namespace", found_there)] if found_there else []
    if isinstance(spec, QueueChannel) and is_service_queue(spec, own_accounts):
        text = "names a queue of the service, which starts with tocsin- or azure-webjobs-, in the service's own account"
        return [("/queue", f"{text}; choose another queue")]
    return []


def without_grants(spec: ChannelSpec) -> ChannelSpec:
    """Return the channel without the part that an operator permits for one tenant, as that of a tenant that does not exist yet."""
    if isinstance(spec, HttpChannel):
        return spec.model_copy(update={"client_certificate": None})
    if isinstance(spec, ServiceBusChannel) and spec.key is None:
        return spec.model_copy(update={"key_name": "any", "key": "any"})
    return spec


def find_grant_faults(spec: ChannelSpec, rules: Sequence[EntraAudience], *, has_identity: bool) -> list[tuple[str, str]]:
    """Return the reasons why a channel without other faults may not have tokens of Entra, as (pointer, detail).

    rules: those of its tenant. has_identity: the service has an identity for such tokens.
    """
    if not isinstance(spec, HttpChannel) or spec.entra_audience is None:
        return []
    return list(requests.grant_faults(spec.entra_audience, URL(spec.url, encoded=True), rules, has_identity=has_identity))


def _url_faults(pointer: str, text: str, egress: Egress) -> Iterator[tuple[str, str]]:
    if (fault := find_fault(text)) is not None:
        yield pointer, fault
        return
    if not _URL.fullmatch(text):
        yield pointer, "must hold only the characters of RFC 3986; percent-encode the others"
        return
    try:
        url = URL(text, encoded=True)
        # Reading the port validates it.
        _ = url.port
    except ValueError:
        yield pointer, "must be a URL, such as https://hooks.example.com/tocsin"
        return
    # Checked on the text, because the parser drops an empty user.
    if _USER.match(text):
        yield pointer, "must not hold a user or password; send it in a header"
    if "#" in text:
        yield pointer, "must not hold a fragment (#...)"
    if reason := egress.problem(url):
        yield pointer, reason


def _path_faults(path: str) -> Iterator[tuple[str, str]]:
    try:
        check_path(path)
    except ValueError as fault:
        yield "/path", str(fault)


def _certificate_faults(tenant: TenantIdentity, spec: HttpChannel, certificates: Container[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    name = spec.client_certificate
    if name is None:
        return
    if not spec.url.lower().startswith("https:"):
        yield "/client_certificate", "needs an https url"
    if find_listed(certificates, tenant, name) is None:
        yield "/client_certificate", "names no certificate of this tenant in TOCSIN_CLIENT_CERTIFICATES; ask the operator to list it"


def _header_faults(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for name, value in headers.items():
        pointer = "/headers/" + name[:128].replace("~", "~0").replace("/", "~1")
        low = name.lower()
        if not _TOKEN.fullmatch(name):
            yield pointer, "is not a valid name of a header"
        elif is_ours(name):
            yield pointer, "is a header that the service or the connection sets; remove it"
        elif low in seen:
            yield pointer, "is given twice, as names that differ only in case; give it once"
        elif len(value) > MAX_HEADER_VALUE or not _VALUE.fullmatch(value):
            yield pointer, f"must have a value of printable ASCII, at most {MAX_HEADER_VALUE:,} characters"
        elif value == MASK:
            yield pointer, "is ***, which keeps the stored value, but none is stored for this receiver; send the value"
        seen.add(low)
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_TOTAL:
        yield "/headers", f"must have at most {MAX_HEADERS_TOTAL:,} characters in all names and values"
