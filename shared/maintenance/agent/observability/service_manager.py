"""Tells systemd that the agent has started, and that its loop goes on: https://www.freedesktop.org/software/systemd/man/sd_notify.html."""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from typing import Final

log = logging.getLogger(__name__)

SOCKET: Final = "NOTIFY_SOCKET"


class ServiceManager:
    """Sends the states of one agent. Without an address it sends nothing. For one thread."""

    def __init__(self, address: str = "") -> None:
        """address: path of the socket; `@` at its beginning stands for the abstract namespace."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._failed = False

    @classmethod
    def take_from(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Return the manager that the environment names, and remove its address, so that hooks do not inherit it."""
        return cls(environment.pop(SOCKET, ""))

    def started(self) -> None:
        """Report that the agent works."""
        self._send(b"READY=1")

    def progress(self) -> None:
        """Report that the loop does not hang."""
        self._send(b"WATCHDOG=1")

    def _send(self, state: bytes) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # The loop must not wait for systemd. The next state follows within seconds.
                sender.setblocking(False)
                sender.sendto(state, self._address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("systemd cannot be told that the agent works: %s", error, extra={"action": "agent_systemd_away"})
            self._failed = True
