"""The hosts that a server on a developer's machine answers for.

A web page may let its own name resolve to 127.0.0.1 (DNS rebinding); the browser then counts a local server as part of the page's site.
The page cannot choose what the browser writes into the Host header, so a server that answers only for known hosts is out of its reach.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

_USUAL: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_AUTHORITY: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]*)?")


def is_loopback(host: str) -> bool:
    """Return true if the host is this machine: `localhost` or a loopback address. No name is looked up."""
    if host in _USUAL:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _host(text: str) -> str:
    """Return the name or address as headers are compared with it. Raises ValueError."""
    if _NAME.fullmatch(text):
        return text.lower().removesuffix(".")
    return str(ip_address(text.removeprefix("[").removesuffix("]")))


class AnsweredHosts:
    """This machine's loopback names and addresses, and further hosts."""

    def __init__(self, further: Iterable[str] = ()) -> None:
        """further: names and addresses without a port. Raises ValueError for any other."""
        self._further = frozenset(map(_host, further))

    def includes(self, given: Iterable[str]) -> bool:
        """Return true if the server answers a request with these Host headers, each with or without a port.

        A request without one passes: every browser sends one.
        """
        return all(self._knows(header) for header in given)

    def _knows(self, header: str) -> bool:
        found = _AUTHORITY.fullmatch(header)
        if found is None:
            return False
        host = (found[1] or found[2] or "").lower().removesuffix(".")
        return is_loopback(host) or host in self._further
