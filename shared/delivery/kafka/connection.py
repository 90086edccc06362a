"""Where brokers are and who we are to them.

Event Hubs is reached by the app's identity (SASL OAUTHBEARER over TLS), or by a user name and password where an operator gives one;
other brokers by password or by nothing. What is set here for Event Hubs follows
https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.errors import TocsinError
from ..egress_guard import Egress

AZURE_DOMAINS = (".servicebus.windows.net", ".servicebus.usgovcloudapi.net", ".servicebus.chinacloudapi.cn")
AZURE_PORT = 9093
CONNECTION_STRING = "$ConnectionString"
"""The user name that Event Hubs wants with a connection string as the password."""

log = logging.getLogger(__name__)

_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?):(?P<port>[0-9]{1,5})")


class NoToken(TocsinError):
    """The app's identity got no token. The message is the type of what the identity library raised."""


class Login(NamedTuple):
    """One way into one cluster; equal logins share a client."""

    servers: str
    tls: bool = True
    username: str | None = None
    password: str | None = None

    @property
    def by_identity(self) -> bool:
        """True when the app's identity speaks for us: at Event Hubs, without a password."""
        return self.username is None and is_azure(self.servers)

    def __repr__(self) -> str:
        return f"Login({self.servers!r}, tls={self.tls}, username={self.username!r})"


type Token = tuple[str, float]
"""A bearer token, and the second since 1970 at which it ends."""
type Tokens = Callable[[str], Token]
"""A token for a scope. Called in a thread of the client's; may block, may raise."""


def split(servers: str) -> list[tuple[str, int]]:
    """Hosts (lower-case, without brackets) and ports. ValueError, in words for a person, for what is neither."""
    found: list[tuple[str, int]] = []
    for part in servers.split(","):
        match = _SERVER.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError("servers must be host:port, or several of them separated by commas")
        found.append((match["host"].strip("[]").lower(), int(match["port"])))
    return found


def is_azure(servers: str) -> bool:
    """True for the Kafka endpoint of one Event Hubs namespace."""
    try:
        found = split(servers)
    except ValueError:
        return False
    return len(found) == 1 and found[0][0].endswith(AZURE_DOMAINS) and found[0][1] == AZURE_PORT


def scope_of(servers: str) -> str:
    """What an identity asks a token for: it is good for this namespace and no other."""
    [(host, _)] = split(servers)
    return f"https://{host}/.default"


def problem_of(login: Login, egress: Egress) -> tuple[str, str] | None:
    """Why a channel may not send there, as (field, detail); None when it may. Pure, nothing is resolved.

    librdkafka resolves names and follows the addresses that brokers advertise by itself, so no check of addresses would hold. Instead only
    those are let through whose word counts: Event Hubs, whose certificate proves who it is, and hosts that the operator has named.
    """
    try:
        found = split(login.servers)
    except ValueError as error:
        return "servers", str(error)
    if is_azure(login.servers):
        if login.username is not None:
            return "username", "Event Hubs is entered by the app's identity, without a user name"
        return None if login.tls else ("tls", "Event Hubs needs tls")
    for host, _ in found:
        if not egress.reaches(host):
            wanted = f"one Event Hubs namespace (name{AZURE_DOMAINS[0]}:{AZURE_PORT}) or hosts on the egress allow-list"
            return "servers", f"egress refused: servers must be {wanted}"
    return None


def config(login: Login, tokens: Tokens | None) -> dict[str, Any]:
    """What every client of this login is configured with. `tokens` is needed where the identity speaks for us."""
    found: dict[str, Any] = {
        "bootstrap.servers": login.servers,
        "client.id": "tocsin",
        # Event Hubs drops connections that were idle for 4 minutes without a word.
        "connections.max.idle.ms": 180_000,
        "metadata.max.age.ms": 180_000,
        "socket.keepalive.enable": True,
        # After an outage what is late is late already; the default would wait up to 10 s more.
        "reconnect.backoff.max.ms": 1_000,
        "allow.auto.create.topics": False,
        # Errors come through the error callback; the library's own lines would go to stderr, past the app's log.
        "log_level": 0,
    }
    if login.tls:
        found["ssl.ca.location"] = ssl.get_default_verify_paths().cafile or "probe"
    if login.by_identity:
        if tokens is None:
            raise ValueError("an identity is needed for Event Hubs")
        found |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": _given(tokens, scope_of(login.servers))}
    elif login.username is not None:
        found |= {
            "security.protocol": "SASL_SSL" if login.tls else "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": login.username,
            "sasl.password": login.password or "",
        }
    else:
        found["security.protocol"] = "SSL" if login.tls else "PLAINTEXT"
    return found


def check_token(login: Login, tokens: Tokens | None) -> None:
    """Ask for a first token where one is needed; NoToken. Blocks. Without one the library would start, wait 10 s, and fail obscurely."""
    if login.by_identity and tokens is not None:
        try:
            tokens(scope_of(login.servers))
        except Exception as error:
            raise NoToken(type(error).__name__) from error


def _given(tokens: Tokens, scope: str) -> Callable[[str], Token]:
    """The library's callback. It must not raise: the exception would come out of whatever call is next. An ended token is refused."""

    def token(_: str) -> Token:
        try:
            return tokens(scope)
        except Exception as error:
            # The text of such errors can be long, and quote addresses and ids.
            log.warning("No token for %s (%s)", scope, type(error).__name__, extra={"action": "kafka_no_token"})
            return "none", 0.0

    return token


def identity_tokens(client_id: str | None) -> Tokens:
    """Tokens of the app's identity; the credential is made when first needed, and caches them."""
    made: list[Any] = []

    def token(scope: str) -> Token:
        if not made:
            from azure.identity import DefaultAzureCredential

            made.append(DefaultAzureCredential(managed_identity_client_id=client_id))
        got = made[0].get_token(scope)
        return got.token, float(got.expires_on)

    return token
