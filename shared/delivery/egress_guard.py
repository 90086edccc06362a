"""The addresses that a channel may reach: public https, and hosts that the operator has named. Prevents server-side request forgery.

A URL is checked when it is used (`problem`: scheme, literal address, unusual spellings), a name when it is resolved (`SafeResolver` drops
addresses that are not allowed), and each socket once more when it is made (`check`), wherever its address came from. The checked address is
the one connected to, so an answer of the resolver that changes in between (DNS rebinding) has no effect.

The allow-list (`TOCSIN_EGRESS_ALLOW`) permits any address for exactly named hosts, and for addresses within named networks in CIDR form.
Plain http is permitted for them on the emulator, elsewhere if `TOCSIN_EGRESS_PLAIN` is set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from aiohappyeyeballs import AddrInfoType

from ..core.errors import UnsafeSettings
from ..core.http1.pool import AddressRefused, addr_info
from ..core.web_urls import HostOfUrl
from .listed_tenants import TenantIdentity
from .name_lookups import ResolveHost, system_lookup

if TYPE_CHECKING:
    from yarl import URL

type ResolvedAddress = IPv4Address | IPv6Address

_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.*", re.IGNORECASE)
"""Hosts with a number as their last label: an IPv4 address or invalid (WHATWG URL 3.5), never a name."""

_GLOBAL6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_CLOSED4 = tuple(
    IPv4Network(text)
    for text in (
        "192.0.0.0/24",  # protocol assignments; Python counts some of it as global
        "192.88.99.0/24",  # 6to4 relays
        "168.63.129.16/32",  # Azure's own host agent (WireServer): a public number that every VM can reach
    )
)
_CLOSED6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # Teredo, ORCHID and other protocol assignments
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries any IPv4 address
        "3fff::/20",  # documentation
    )
)


_NO_PLAIN = "plain http is only for hosts on the allow-list"
_NO_PLAIN_HERE = "plain http is off: the url's scheme must be https, unless the operator sets TOCSIN_EGRESS_PLAIN"
_NO_ADDRESS = "the host has no publicly routable address"


class EgressRefused(AddressRefused):
    """Raised for an address or scheme that the egress rules do not allow."""


def _plain(address: ResolvedAddress) -> ResolvedAddress:
    """Return the IPv4 address inside a mapped or NAT64 form, because packets go there."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def refusal(address: ResolvedAddress) -> str | None:
    """Return the short reason why `address` is not publicly routable, or None if it is."""
    address = _plain(address)
    if address.is_unspecified:
        return "unspecified"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if isinstance(address, IPv4Address):
        if not address.is_global or address.is_reserved or any(address in network for network in _CLOSED4):
            return "private or reserved"
    elif address.scope_id or address not in _GLOBAL6 or not address.is_global or any(address in network for network in _CLOSED6):
        return "private or reserved"
    return None


class Egress:
    """The rules for one allow-list. UnsafeSettings for an entry that is neither a host nor a network.

    plain: True if hosts on the list may be reached by plain http. namespaces: the Service Bus namespaces that get tokens of the app's
    identity, as `service_bus.parse_grants` returns them.
    """

    def __init__(self, names: Iterable[str] = (), *, plain: bool = True, namespaces: Iterable[tuple[str, str]] = ()) -> None:
        self._plain_too = plain
        self._grants = frozenset(namespaces)
        self._hosts: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        for name in names:
            text = name.strip().lower()
            try:
                self._networks.append(ip_network(text.strip("[]"), strict=False))
                continue
            except ValueError:
                pass
            if not _HOST.fullmatch(text) or _NUMERIC.fullmatch(text):
                raise UnsafeSettings(f"TOCSIN_EGRESS_ALLOW: {one_entry(name)} is neither a host name nor a network like 10.1.0.0/16")
            self._hosts.add(text)

    def names(self, host: str) -> bool:
        """Return True if the allow-list names exactly this host."""
        return host.lower() in self._hosts

    def opens(self, address: ResolvedAddress) -> bool:
        """Return True if the address is in a network of the allow-list."""
        address = _plain(address)
        return any(address in network for network in self._networks)

    def reaches(self, host: str) -> bool:
        """Return True if the allow-list names `host`, or if it is an address in a network of the list; nothing is resolved."""
        try:
            return self.names(host) or self.opens(ip_address(host))
        except ValueError:
            return False

    def grants(self, tenant: TenantIdentity, host: str) -> bool:
        """Return True if deliveries of this tenant to this Service Bus namespace use the app's identity."""
        return any((each, host.lower()) in self._grants for each in ("", *tenant.listed))

    def problem(self, url: HostOfUrl) -> str | None:
        """Return the reason why a channel with this URL can never be reached, or None. Pure, nothing is resolved."""
        host = url.raw_host
        if url.scheme not in ("http", "https"):
            return "the url's scheme must be https"
        if not host:
            return "the url names no host"
        if url.scheme == "http" and not self._plain_too:
            return _NO_PLAIN_HERE
        address: ResolvedAddress | None = None
        if ":" in host or _NUMERIC.fullmatch(host):
            try:
                address = ip_address(host)
            except ValueError:
                # Some libraries read decimal, hexadecimal, octal and short forms as one address and others as another.
                return "the url's address must be written in its canonical form"
        if address is None:
            if not _HOST.fullmatch(host.lower().removesuffix(".")):
                return "the url's host is not a valid name"
            if url.scheme == "http" and not self.names(host) and not self._networks:
                return _NO_PLAIN
            return None
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            return "addresses with a zone are not allowed"
        if self.opens(address):
            return None
        if reason := refusal(address):
            return f"the url's address is {reason}"
        return _NO_PLAIN if url.scheme == "http" else None

    def allows(self, host: str, address: ResolvedAddress, *, plain: bool = False) -> bool:
        """Return True if a connection made for `host` may go to `address`. plain: the connection has no TLS."""
        if plain and not self._plain_too:
            return False
        if self.names(host) or self.opens(address):
            return True
        return not plain and refusal(address) is None

    def check(self, host: str, address: str, *, plain: bool) -> None:
        """Raise EgressRefused unless `allows`. The message omits the address, so that names of a private zone stay private."""
        try:
            allowed = self.allows(host, ip_address(address), plain=plain)
        except ValueError:
            allowed = False
        if not allowed:
            raise EgressRefused(_NO_PLAIN if plain else _NO_ADDRESS)


def one_entry(name: str) -> str:
    """Return an allow-list entry as an error may show it."""
    return repr(name[:60])


class SafeResolver:
    """Resolves names to allowed addresses."""

    def __init__(self, egress: Egress, lookup: ResolveHost = system_lookup) -> None:
        self._egress, self._lookup = egress, lookup

    async def resolve(self, host: str, port: int) -> list[AddrInfoType]:
        """Return the allowed addresses of a name. Raises OSError if it has no address, EgressRefused if none is allowed."""
        found = await self._lookup(host, port)
        if not found:
            raise OSError("no address")
        allowed = [addr_info(text, port) for text in dict.fromkeys(found) if self._egress.allows(host, ip_address(text))]
        if not allowed:
            raise EgressRefused(_NO_ADDRESS)
        return allowed


AZURE_DOMAINS = (".eventgrid.azure.net", ".eventgrid.azure.us", ".eventgrid.azure.cn")


def is_azure(url: URL) -> bool:
    """Return True for an endpoint in one of Azure's own Event Grid domains, over TLS."""
    return url.scheme == "https" and (url.host or "").lower().endswith(AZURE_DOMAINS) and url.explicit_port in (None, 443)


def grid_problem(endpoint: str, egress: Egress) -> str | None:
    """Return the reason why an Event Grid channel with this endpoint can never deliver, or None."""
    from yarl import URL

    try:
        url = URL(endpoint)
    except ValueError:
        return "the channel's endpoint is not a valid url"
    if url.user is not None:
        return "the channel's endpoint must not hold credentials"
    if is_azure(url):
        return None
    if reason := egress.problem(url):
        return f"egress refused: {reason}"
    # The SDK resolves names itself, so only a host on the list, or a literal address in a network of the list, is allowed.
    if egress.reaches(url.raw_host or ""):
        return None
    return "egress refused: the endpoint is in none of Event Grid's domains, nor on the allow-list"
