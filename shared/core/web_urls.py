"""The parts of a web address as it is written: nothing is decoded, normalized or completed but the default port.

The deliveries of a process need no more. What users write is checked by a whole parser before it is stored.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"http": 80, "https": 443}


class HostOfUrl(Protocol):
    """The parts of a parsed address that decide where a request goes. Those of yarl have them too."""

    @property
    def scheme(self) -> str:
        """The scheme in lower case."""

    @property
    def raw_host(self) -> str | None:
        """The host, without brackets."""

    @property
    def port(self) -> int | None:
        """The port, or the scheme's."""


class WebUrl(NamedTuple):
    """A parsed address."""

    scheme: str
    user: str | None
    password: str | None
    raw_host: str | None
    explicit_port: int | None

    @property
    def port(self) -> int | None:
        """The port, or the scheme's."""
        return _PORTS.get(self.scheme) if self.explicit_port is None else self.explicit_port

    @property
    def host_header(self) -> str:
        """The value of the header `Host`: without the scheme's own port, and without a dot at the end of the name."""
        host = (self.raw_host or "").rstrip(".")
        shown = f"[{host}]" if ":" in host else host
        return shown if self.explicit_port in (None, _PORTS.get(self.scheme)) else f"{shown}:{self.explicit_port}"


def parse_url(text: str) -> WebUrl:
    """Return the parts of an address. ValueError for one that parsers may understand in several ways."""
    split = urlsplit(text)
    login, at, place = split.netloc.rpartition("@")
    if "\\" in split.netloc or (place.startswith("[") and "]" not in place) or ("[" in place and not place.startswith("[")):
        raise ValueError("the host is not valid")
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        if "[" in host or "]" in rest or (rest and not rest.startswith(":")) or ":" not in host:
            raise ValueError("the host is not valid")
        port = rest[1:]
    else:
        host, _, port = place.partition(":")
    if port and not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise ValueError("the port is not valid")
    user, colon, password = login.partition(":")
    return WebUrl(
        split.scheme,
        unquote(user) if at and user else None,
        unquote(password) if colon else None,
        host or None,
        int(port) if port else None,
    )
