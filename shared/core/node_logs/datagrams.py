"""Log lines as datagrams: to journald in its native protocol, or to syslog as RFC 5424, both with structured fields.

journald: https://systemd.io/JOURNAL_NATIVE_PROTOCOL/. Sending never waits: a line that the receiver has no room for is dropped and counted.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..clock import to_text
from .lines import LogLine, line_of

log = logging.getLogger(__name__)

JOURNALD: Final = "/run/systemd/journal/socket"
DAEMON: Final = 3
"""The syslog facility `daemon`."""
ENTERPRISE: Final = "32473"
"""The enterprise number that RFC 5612 sets aside for documentation: Tocsin has none of its own."""
SHORT: Final = 1024
"""Characters of the text and of each field of a syslog message, and of a line that is too long for one datagram."""
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))
_NOT_IN_FIELD: Final = re.compile(r"[^A-Z0-9_]")
_NOT_IN_PARAM: Final = re.compile(r"[^!#-<>-\\^-~]")
_NOT_PRINTABLE: Final = re.compile(r"[^!-~]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
"""In syslog, a line break in a text could pose as a message of its own."""

type Encode = Callable[[LogLine], bytes]
type Address = str | tuple[str, int]


def priority(level: int) -> int:
    """Return the syslog severity of a level."""
    return next(number for least, number in _PRIORITIES if level >= least)


def shortened(line: LogLine, most: int = SHORT) -> LogLine:
    """Return a line with its text and fields cut to `most` characters."""
    fields = {name: value[:most] if isinstance(value, str) else value for name, value in line.fields.items()}
    return line._replace(text=line.text[:most], fields=fields)


def journald_datagram(line: LogLine, identifier: str) -> bytes:
    """Return a line as journald expects it: `MESSAGE`, `PRIORITY`, and each field under `TOCSIN_` and its name in capitals."""
    fields = {"MESSAGE": line.text, "PRIORITY": str(priority(line.level)), "SYSLOG_IDENTIFIER": identifier, "LOGGER": line.logger}
    for name, value in line.fields.items():
        fields["TOCSIN_" + _NOT_IN_FIELD.sub("_", name.upper())[:57]] = str(value)
    return b"".join(_journald_field(name, value.encode()) for name, value in fields.items())


def _journald_field(name: str, value: bytes) -> bytes:
    # A value with a line break needs its length before it. Otherwise it could pose as further fields.
    if b"\n" in value:
        return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"
    return name.encode() + b"=" + value + b"\n"


def syslog_datagram(line: LogLine, identifier: str, host: str) -> bytes:
    """Return a line as a message of RFC 5424. MSGID is the action; the fields are structured data."""
    line = shortened(line)
    at = to_text(line.at_ns // 1_000_000)
    params = "".join(f' {_NOT_IN_PARAM.sub("_", name)[:32]}="{_escaped(str(value))}"' for name, value in line.fields.items())
    action = _NOT_PRINTABLE.sub("_", str(line.fields.get("action", "")))[:32] or "-"
    head = f"<{8 * DAEMON + priority(line.level)}>1 {at} {_NOT_PRINTABLE.sub('_', host)[:255] or '-'} {identifier} {os.getpid()} {action}"
    return f"{head} [tocsin@{ENTERPRISE}{params}] \ufeff{_CONTROL.sub(' ', line.text)}".encode()


def _escaped(value: str) -> str:
    return re.sub(r'(["\\\]])', r"\\\1", _CONTROL.sub(" ", value))


class DatagramHandler(logging.Handler):
    """Sends each line as one datagram.

    fallback: handles the lines that cannot be sent; without one they are lost. counts: lines that were `sent` and `dropped`.
    """

    def __init__(
        self,
        output: str,
        address: Address,
        encode: Encode,
        about: Mapping[str, str],
        *,
        secrets: Sequence[str] = (),
        fallback: logging.Handler | None = None,
    ) -> None:
        """output: its name in log lines. address: the path of a socket, or an IP address and a port."""
        super().__init__(logging.INFO)
        self._output, self._address, self._encode, self._about, self._secrets = output, address, encode, about, secrets
        self._fallback = fallback
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._away = False
        self.counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line. Never waits, and raises nothing."""
        try:
            line = line_of(record, self._about, self._secrets)
            try:
                self._send(line)
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                self._send(shortened(line))
        except OSError as error:
            self.counts["dropped"] += 1
            if self._fallback is not None:
                self._fallback.handle(record)
            self._report(error)
        except Exception:
            self.handleError(record)
        else:
            self.counts["sent"] += 1
            self._report(None)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
        super().close()

    def _send(self, line: LogLine) -> None:
        self._socket.sendto(self._encode(line), self._address)

    def _report(self, error: OSError | None) -> None:
        """Log the first failure, and the first success after it."""
        if (error is not None) == self._away:
            return
        # Before the line below, which comes back here.
        self._away = error is not None
        if error is not None:
            extra = {"action": "logs_unsent", "output": self._output}
            log.warning("Log lines cannot be sent to %s: %s", self._output, os.strerror(error.errno or 0), extra=extra)
        else:
            extra = {"action": "logs_resumed", "output": self._output}
            log.info("Log lines are sent to %s again; %d were not", self._output, self.counts["dropped"], extra=extra)
