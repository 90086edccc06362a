"""The settings of a node's log outputs, and `export_logs`, which starts them.

The names for OTLP are those of OpenTelemetry (https://opentelemetry.io/docs/specs/otel/protocol/exporter/), as in the app.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from .datagrams import JOURNALD, DatagramHandler, journald_datagram, syslog_datagram
from .otlp import Collector, OtlpHandler, SentLines

PACKAGE: Final = __package__.partition(".")[0]
"""The logger above all of the project's own: `tocsin` where the wheel is installed."""
LOGS_PATH: Final = "/v1/logs"
SYSLOG_PORT: Final = 514
_ON: Final = ("1", "true", "yes")
_OFF: Final = ("", "0", "false", "no")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHORTEST_SECRET: Final = 4
"""Shorter texts are no secrets, and hiding them would make lines unreadable."""


class NodeSetting(NamedTuple):
    """An environment variable of a node, for the page of settings."""

    name: str
    meaning: str
    secret: bool = False


SETTINGS: Final = (
    NodeSetting("OTEL_EXPORTER_OTLP_ENDPOINT", "Log lines go to this collector by OTLP over HTTP with JSON; `/v1/logs` is added."),
    NodeSetting("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "The whole address for log lines. It has precedence over the former."),
    NodeSetting("OTEL_EXPORTER_OTLP_HEADERS", "Headers for the collector, such as `api-key=...,tenant=a`; values are URL-encoded.", True),
    NodeSetting("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "The same for log lines only. They have precedence, header by header.", True),
    NodeSetting("OTEL_RESOURCE_ATTRIBUTES", "Further attributes of the node, such as `deployment.environment=production`; URL-encoded."),
    NodeSetting("OTEL_SERVICE_NAME", "The attribute `service.name`; by default `tocsin-agent` or `tocsin-keeper`."),
    NodeSetting("OTEL_LOGS_EXPORTER", "`none`: no line goes to a collector."),
    NodeSetting("OTEL_SDK_DISABLED", "`true`: no line goes to a collector."),
    NodeSetting("TOCSIN_LOG_JOURNALD", f"`true`: lines go to journald with structured fields; or the path of its socket (`{JOURNALD}`)."),
    NodeSetting(
        "TOCSIN_LOG_SYSLOG",
        "Lines go to syslog (RFC 5424, one datagram each): `udp://10.0.0.5:514` with an IP address, or `unix:/dev/log`.",
    ),
    NodeSetting("TOCSIN_TRACE", "Servers with the library log each of their transactions for `tocsin verify-trace`; as the app's setting."),
)


class BadOutput(ValueError):
    """A setting of an output is wrong. The text names it and shows no secret."""


@dataclass(frozen=True, slots=True)
class LogOutputs:
    """Outputs of lines. otlp: the whole address; '' for none. journald: path of its socket. syslog: a path, or address and port."""

    otlp: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    attributes: Mapping[str, str] = field(default_factory=dict)
    journald: str = ""
    syslog: str | tuple[str, int] = ""

    def __bool__(self) -> bool:
        return bool(self.otlp or self.journald or self.syslog)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of headers, and their parts: `Bearer x` is two."""
        found = {part for value in self.headers.values() for part in (value, *value.split())}
        return tuple(sorted((each for each in found if len(each) >= _SHORTEST_SECRET), key=len, reverse=True))


def read_outputs(environment: Mapping[str, str], *, otlp: str = "", journald: bool = False, syslog: str = "") -> LogOutputs:
    """Return the outputs that the environment asks for; the arguments are a command's options and have precedence. Raises `BadOutput`."""
    texts = {name: environment.get(name, "").strip() for name, _, _ in SETTINGS}
    off = texts["OTEL_SDK_DISABLED"].lower() == "true" or texts["OTEL_LOGS_EXPORTER"].lower() == "none"
    headers: dict[str, str] = {}
    attributes: dict[str, str] = {}
    if otlp:
        url = _collector(otlp, "--otlp") + LOGS_PATH
    elif texts["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"] and not off:
        url = _collector(texts["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"], "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
    elif texts["OTEL_EXPORTER_OTLP_ENDPOINT"] and not off:
        url = _collector(texts["OTEL_EXPORTER_OTLP_ENDPOINT"], "OTEL_EXPORTER_OTLP_ENDPOINT") + LOGS_PATH
    else:
        url = ""
    if url:
        for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"):
            headers |= {key.lower(): value for key, value in _pairs(texts[name], name).items()}
        attributes = _pairs(texts["OTEL_RESOURCE_ATTRIBUTES"], "OTEL_RESOURCE_ATTRIBUTES")
        attributes |= {"service.name": texts["OTEL_SERVICE_NAME"]} if texts["OTEL_SERVICE_NAME"] else {}
        if headers and urlsplit(url).scheme == "http" and urlsplit(url).hostname not in _LOOPBACK:
            raise BadOutput("OTEL_EXPORTER_OTLP_HEADERS: the headers would be sent without encryption; use https:// for the collector")
    return LogOutputs(
        url,
        headers,
        attributes,
        JOURNALD if journald else _journald(texts["TOCSIN_LOG_JOURNALD"]),
        _syslog(syslog or texts["TOCSIN_LOG_SYSLOG"]),
    )


def _collector(url: str, name: str) -> str:
    """Return the address without a trailing slash. The message does not contain it, because it may hold a password."""
    wrong = BadOutput(f"{name}: not an address like https://collector.example:4318, without user and query; set secrets as headers")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
        raise wrong
    if parts.query or parts.fragment or any(not "!" <= letter <= "~" for letter in url):
        raise wrong
    return url.rstrip("/")


def _pairs(text: str, name: str) -> dict[str, str]:
    """Return pairs `a=b,c=d` with URL-encoded values."""
    found: dict[str, str] = {}
    for number, pair in enumerate(filter(None, (each.strip() for each in text.split(","))), 1):
        key, separator, value = pair.partition("=")
        key, value = key.strip(), unquote(value.strip())
        if not separator or not key or not all("!" <= letter <= "~" and letter not in ":=" for letter in key):
            raise BadOutput(f"{name}: pair {number} is not like name=value")
        if any(not " " <= letter <= "~" for letter in value):
            raise BadOutput(f"{name}: the value of {key} has characters other than printable ASCII")
        found[key] = value
    return found


def _journald(text: str) -> str:
    if text.lower() in _ON:
        return JOURNALD
    if text.lower() in _OFF:
        return ""
    if not text.startswith("/"):
        raise BadOutput(f"TOCSIN_LOG_JOURNALD: {text!r} is neither true, false nor the path of a socket such as {JOURNALD}")
    return text


def _syslog(text: str) -> str | tuple[str, int]:
    if not text:
        return ""
    wrong = BadOutput(f"TOCSIN_LOG_SYSLOG: {text!r} is not like udp://10.0.0.5:514 (an IP address) or unix:/dev/log")
    if text.startswith("unix:/"):
        return text.removeprefix("unix:")
    try:
        parts = urlsplit(text)
        # Names are not resolved: that could take seconds, while a heartbeat waits.
        address = str(ipaddress.ip_address(parts.hostname or ""))
        port = SYSLOG_PORT if parts.port is None else parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme != "udp" or not port or parts.path not in ("", "/") or parts.query or "@" in parts.netloc:
        raise wrong
    return address, port


class LogExport:
    """The running outputs of a process. Use it as a context manager, or call `close` at the end."""

    def __init__(self, logger: logging.Logger, handlers: Sequence[OtlpHandler | DatagramHandler]) -> None:
        self._logger, self._handlers = logger, handlers
        for handler in handlers:
            logger.addHandler(handler)

    @property
    def counts(self) -> Counter[str]:
        """Lines of all outputs: `sent`, `refused` by a collector, `dropped` because they could not be sent."""
        return sum((handler.counts for handler in self._handlers), Counter())

    def close(self) -> None:
        """Send the last lines, within five seconds, and end. Safe to repeat."""
        for handler in self._handlers:
            handler.close()
            self._logger.removeHandler(handler)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def export_logs(
    *,
    node: str,
    fleet: str = "",
    tenant: str = "",
    service: str = "tocsin-keeper",
    outputs: LogOutputs | None = None,
    secrets: Sequence[str] = (),
    logger: logging.Logger | None = None,
    fallback: logging.Handler | None = None,
) -> LogExport:
    """Send the lines of this process, from level INFO on, to the outputs; by default to those that the environment asks for.

    Each line carries the node, the fleet and the tenant. service: the attribute `service.name`. secrets: texts that are hidden in lines,
    beside those of `outputs`. logger: whose lines; by default those of Tocsin, whose level becomes INFO unless the program has set one.
    fallback: handles lines that journald or syslog does not accept. Raises `BadOutput`.
    """
    outputs = read_outputs(os.environ) if outputs is None else outputs
    if logger is None:
        logger = logging.getLogger(PACKAGE)
        if outputs and logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    hidden = tuple(sorted({*outputs.secrets, *(each for each in secrets if len(each) >= _SHORTEST_SECRET)}, key=len, reverse=True))
    about = {name: value for name, value in (("node", node), ("fleet", fleet), ("tenant", tenant)) if value}
    host = socket.gethostname()
    handlers: list[OtlpHandler | DatagramHandler] = []
    if outputs.otlp:
        resource = {"service.name": service, "service.instance.id": node, "host.name": host, **outputs.attributes}
        handlers.append(OtlpHandler(Collector(outputs.otlp, outputs.headers, resource), SentLines(about, hidden)))
    for output, address, encode in (
        ("journald", outputs.journald, partial(journald_datagram, identifier=service)),
        ("syslog", outputs.syslog, partial(syslog_datagram, identifier=service, host=host)),
    ):
        if address:
            handlers.append(DatagramHandler(output, address, encode, about, secrets=hidden, fallback=fallback))
    return LogExport(logger, handlers)
