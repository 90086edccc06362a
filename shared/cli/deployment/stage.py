"""The tenant, the channel and the queue of a run, and their removal."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ...client.errors import Refused
from ...core.errors import TocsinError
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from ..session import CommandSession, api_path
from .mailbox import Mailbox, MailboxRefused, QueueAddress
from .rules import CHANNEL

_NAME: Final = re.compile(r"tocsincheck-([0-9]{10})-[0-9a-f]{8}")
FORGOTTEN: Final = 7_200.0
"""Seconds after which a run has certainly ended. The next run removes what a killed one has left."""


class Stage:
    """The tenant, channel and queue of one run. `remove` may be called at any time, and again."""

    def __init__(self, admin: CommandSession, address: QueueAddress) -> None:
        """admin: a session without a tenant, whose key has the scope admin."""
        self.tenant = f"tocsincheck-{int(time.time())}-{secrets.token_hex(4)}"
        self.mailbox = Mailbox(address, self.tenant)
        self.session = CommandSession(replace(admin.app, tenant=self.tenant))
        """Acts for the tenant."""
        self._admin, self._address = admin, address
        self._has_queue = self._has_tenant = False

    @property
    def source(self) -> str:
        """The source of this run's deliveries."""
        return f"/tenants/{self.tenant}/channels/{CHANNEL}"

    def create(self) -> None:
        """Create the queue and read it, then the tenant with its channel. Raises `TocsinError`."""
        # Before each: an answer that is lost leaves something to remove.
        self._has_queue = True
        try:
            self.mailbox.create()
        except (MailboxRefused, CommandFailed):
            # Nothing was created.
            self._has_queue = False
            raise
        self.mailbox.read_once()
        self._has_tenant = True
        self._admin.send("PUT", api_path("tenants", self.tenant), {}, repeatable=True)
        channel = {"type": "queue", "queue": self.mailbox.name}
        self._admin.send("PUT", api_path("tenants", self.tenant, "channels", CHANNEL), channel, repeatable=True)

    def remove(self, open_events: Iterable[str]) -> list[str]:
        """Cancel these events, then remove the tenant and the queue. Return what is left, each with the reason."""
        left = []
        if self._has_tenant:
            for event in open_events:
                try:
                    self.session.send("DELETE", api_path("events", event), repeatable=True)
                except Refused:
                    # It has ended meanwhile.
                    continue
                except TocsinError:
                    # The removal of the tenant ends them too, and says more.
                    break
            try:
                self._remove_tenant(self.tenant)
                self._has_tenant = False
            except TocsinError as error:
                left.append(f"tenant {self.tenant}: {to_command_failure(error).title}")
        if self._has_queue:
            try:
                self.mailbox.remove()
                self._has_queue = False
            except TocsinError as error:
                left.append(f"queue {self.mailbox.name}: {error}")
        return left

    def remove_forgotten(self) -> list[str]:
        """Remove what killed runs have left. Return what is left, each with the reason."""
        try:
            self._remove_forgotten()
        except TocsinError as error:
            return [f"leftovers of former runs: {to_command_failure(error).title}"]
        return []

    def _remove_forgotten(self) -> None:
        for each in list(self._admin.items("tenants")):
            name = str(each.get("name"))
            made = _NAME.fullmatch(name)
            if made is None or time.time() - int(made[1]) < FORGOTTEN:
                continue
            # The name alone proves nothing: only this command's channel does.
            channels = list(self._admin.items(api_path("tenants", name, "channels")))
            if [channel.get("name") for channel in channels] not in ([CHANNEL], []) or any(
                each.get("type") != "queue" for each in channels
            ):
                continue
            self._remove_tenant(name)
            if not self.mailbox.given:
                forgotten = Mailbox(self._address, name)
                forgotten.remove()
                forgotten.close()

    def close(self) -> None:
        """Close the connections."""
        self.session.close()
        self.mailbox.close()

    def _remove_tenant(self, name: str) -> None:
        try:
            self._admin.send("DELETE", api_path("tenants", name), repeatable=True)
        except Refused as refused:
            if refused.status != 404:
                raise


def require_admin(session: CommandSession) -> None:
    """Raise `CommandFailed` unless the key is an admin key of no tenant."""
    key = session.get("key")
    if "admin" not in key.get("scopes", ()) or key.get("tenant"):
        advice = "Set TOCSIN_KEY to the service's TOCSIN_ADMIN_KEY: the command creates a tenant of its own, and removes it."
        raise CommandFailed("the key is no admin key", where="TOCSIN_KEY", advice=advice, status=Exit.REFUSED)
