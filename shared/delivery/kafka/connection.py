"""Connections to brokers: the login, checks of servers, and the configuration of clients.

Event Hubs is reached with the app's identity (SASL OAUTHBEARER over TLS), or with a user name and password if an operator gives one; other
brokers with a password or without a login. The settings for Event Hubs follow
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
from ..service_bus import AZURE_DOMAINS

AZURE_PORT = 9093
CONNECTION_STRING = "$ConnectionString"
"""The user name that Event Hubs requires with a connection string as the password."""

log = logging.getLogger(__name__)

_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?):(?P<port>[0-9]{1,5})")


class NoToken(TocsinError):
    """Raised if the app's identity got no token. The message is the type of the identity library's error."""


class Login(NamedTuple):
    """A login to one cluster; equal logins share a client."""

    servers: str
    tls: bool = True
    username: str | None = None
    password: str | None = None

    @property
    def by_identity(self) -> bool:
        """True if the login uses the app's identity: at Event Hubs, without a password."""
        return self.username is None and is_azure(self.servers)

    def __repr__(self) -> str:
        return f"Login({self.servers!r}, tls={self.tls}, username={self.username!r})"


type KafkaToken = tuple[str, float]
"""A bearer token, and the Unix time in seconds at which it expires."""
type KafkaTokens = Callable[[str], KafkaToken]
"""Returns a token for a scope. Called in a thread of the client; may block, may raise."""


def split(servers: str) -> list[tuple[str, int]]:
    """Split a list of servers into hosts (lower-case, without brackets) and ports. ValueError with a readable text if it is invalid."""
    found: list[tuple[str, int]] = []
    for part in servers.split(","):
        match = _SERVER.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ValueError("servers must be host:port, or several of them separated by commas")
        found.append((match["host"].strip("[]").lower(), int(match["port"])))
    return found


def is_azure(servers: str) -> bool:
    """Return True for the Kafka endpoint of one Event Hubs namespace."""
    try:
        found = split(servers)
    except ValueError:
        return False
    return len(found) == 1 and found[0][0].endswith(AZURE_DOMAINS) and found[0][1] == AZURE_PORT


def scope_of(servers: str) -> str:
    """Return the scope of the identity's token: it is valid for this namespace only."""
    [(host, _)] = split(servers)
    return f"https://{host}/.default"


def problem_of(login: Login, egress: Egress) -> tuple[str, str] | None:
    """Return the reason why a channel may not send to these servers, as (field, detail), or None. Pure, nothing is resolved.

    librdkafka resolves names and follows the addresses that brokers advertise, so a check of addresses would not hold. Instead only trusted
    servers are allowed: Event Hubs, which proves its identity by certificate, and hosts that the operator named.
    """
    try:
        found = split(login.servers)
    except ValueError as error:
        return "servers", str(error)
    if is_azure(login.servers):
        if login.username is not None:
            return "username", "Event Hubs uses the app's identity here; leave out username and password"
        return None if login.tls else ("tls", "Event Hubs needs tls")
    for host, _ in found:
        if not egress.reaches(host):
            wanted = f"one Event Hubs namespace (name{AZURE_DOMAINS[0]}:{AZURE_PORT}) or hosts on the egress allow-list"
            return "servers", f"egress refused: servers must be {wanted}"
    return None


def config(login: Login, tokens: KafkaTokens | None) -> dict[str, Any]:
    """Return the configuration of every client of this login. `tokens` is needed if the login uses the app's identity."""
    found: dict[str, Any] = {
        "bootstrap.servers": login.servers,
        "client.id": "tocsin",
        # Event Hubs drops idle connections after 4 minutes without notice.
        "connections.max.idle.ms": 180_000,
        "metadata.max.age.ms": 180_000,
        "socket.keepalive.enable": True,
        # After an outage events are late already; the default would wait up to 10 s more.
        "reconnect.backoff.max.ms": 1_000,
        "allow.auto.create.topics": False,
        # Errors come through the error callback; the library's own log lines would go to stderr and bypass the app's log.
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


def check_token(login: Login, tokens: KafkaTokens | None) -> None:
    """Get a first token if one is needed. Raises NoToken; blocks. Without it the library would start, wait 10 s, and fail with an unclear
    error."""
    if login.by_identity and tokens is not None:
        try:
            tokens(scope_of(login.servers))
        except Exception as error:
            raise NoToken(type(error).__name__) from error


def _given(tokens: KafkaTokens, scope: str) -> Callable[[str], KafkaToken]:
    """Return the library's token callback. It must not raise, because the exception would surface in an unrelated call. It returns an
    expired token instead, which is refused."""

    def token(_: str) -> KafkaToken:
        try:
            return tokens(scope)
        except Exception as error:
            # The text of such errors can be long and quote addresses and ids.
            log.warning("No token for %s (%s)", scope, type(error).__name__, extra={"action": "kafka_no_token"})
            return "none", 0.0

    return token


def identity_tokens(client_id: str | None) -> KafkaTokens:
    """Return a source of tokens of the app's identity. Its credential is made when first needed and caches tokens."""
    made: list[Any] = []

    def token(scope: str) -> KafkaToken:
        if not made:
            from azure.identity import DefaultAzureCredential

            made.append(DefaultAzureCredential(managed_identity_client_id=client_id))
        got = made[0].get_token(scope)
        return got.token, float(got.expires_on)

    return token
