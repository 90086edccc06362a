"""A queue of the home account, into which the service delivers and which this command reads, with tokens of `az login` or a key."""

from __future__ import annotations

import base64
import binascii
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import httpx

from ...core.errors import TocsinError
from ...storage.azure import wire
from ...storage.azure.account import VERSION, Account, Signature, from_connection_string
from ...storage.blocking import run_through
from ..exits import Exit
from ..failures import CommandFailed
from .seen import Delivered, OffsetBounds

RESOURCE: Final = "https://storage.azure.com/"
PATIENCE: Final = 60.0
"""Seconds that `az` may take."""
_EARLY: Final = 300.0
"""Seconds before its end at which a token is replaced."""
_ADVICE: Final = "Install the Azure CLI and run az login, or give --queue-url with a shared access signature."


class LoginTokens:
    """Authorizes requests with the token of the user that `az login` has signed in. Never shows it."""

    suffix = ""

    def __init__(self, ask: Callable[[], str] | None = None, clock: Callable[[], float] = time.time) -> None:
        """ask: returns what `az account get-access-token` prints."""
        self._ask, self._clock = ask or _ask_az, clock
        self._token, self._until = "", 0.0

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        """Add the token. Raises `CommandFailed` without one."""
        now = self._clock()
        if now >= self._until:
            try:
                answer = dict(json.loads(self._ask()))
                # A token with little time left is used for half of it, so that `az` is not asked for each request.
                ends_at = float(answer.get("expires_on", now + _EARLY))
                self._token, self._until = f"Bearer {answer['accessToken']}", ends_at - min(_EARLY, (ends_at - now) / 2)
            except (ValueError, KeyError, TypeError):
                raise CommandFailed("az printed no token", where="az account get-access-token", advice="Update the Azure CLI.") from None
        headers["x-ms-date"] = formatdate(int(now), usegmt=True)
        headers["Authorization"] = self._token

    def refused(self) -> bool:
        """Forget the token. Return True: another one may be accepted."""
        self._until = 0.0
        return True

    async def close(self) -> None:
        """Nothing to release."""


def _ask_az() -> str:
    program = shutil.which("az")
    if program is None:
        raise CommandFailed("az is not installed", where="az account get-access-token", advice=_ADVICE, status=Exit.USAGE)
    command = [program, "account", "get-access-token", "--resource", RESOURCE, "--output", "json"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"az gave no token: {type(error).__name__}", where=" ".join(command[1:]), advice=_ADVICE) from None
    if done.returncode:
        # Its last line says most; none of its lines holds a token.
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise CommandFailed(f"az gave no token: {lines[-1]}", where=" ".join(command[1:]), advice=_ADVICE)
    return done.stdout


_TIMEOUT: Final = 15.0
"""Seconds without a byte after which a request is given up."""
_HIDDEN: Final = 60
"""Seconds for which a taken message is hidden. It is deleted at once, unless another program has put it."""
_PAGE: Final = 32
_MOST_PAGES: Final = 40
"""Most pages of one look: a queue that another program fills may have no end."""
_AZURE: Final = re.compile(
    r"[a-z0-9]{3,24}(?:\.z[0-9]{1,3})?\.queue\.(?:core\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn)|storage\.azure\.net)"
)
"""The hosts to which a token of `az login` is sent: whoever answers for the service must not get it."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_EMULATOR: Final = "devstoreaccount1"
_EXAMPLE: Final = "Give --queue-url 'https://NAME.queue.core.windows.net?SIGNATURE'."


class MailboxRefused(TocsinError):
    """Raised if storage refuses a request. status, code: its answer, such as 403 and AuthorizationPermissionMismatch."""

    def __init__(self, action: str, status: int, code: str) -> None:
        super().__init__(f"storage refuses to {action}: {code} ({status})")
        self.action, self.status, self.code = action, status, code


class MailboxUnreachable(TocsinError):
    """Raised if storage does not answer."""


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """The address of an account's queues, or of one queue. signature: of a shared access signature, or empty."""

    base: str
    queue: str = ""
    signature: str = field(default="", repr=False)

    def account(self) -> Account:
        """Return the account with the credential for this address. Raises `CommandFailed` if none may be sent there."""
        parts = urlsplit(self.base)
        local = parts.hostname in _LOOPBACK
        if self.signature:
            if parts.scheme != "https" and not local:
                raise _usage("a signature travels over https only", "Begin the address with https://.")
            return Account(self.base, Signature(self.signature))
        if local and parts.path == f"/{_EMULATOR}":
            return from_connection_string("queue", f"UseDevelopmentStorage=true;QueueEndpoint={self.base}")
        if parts.scheme == "https" and parts.port in (None, 443) and not parts.path and _AZURE.fullmatch(parts.hostname or ""):
            return Account(self.base, LoginTokens())
        raise _usage(f"{self.base} is not an address of Azure's queues: a token of az login is not sent there", _EXAMPLE)


def parse_address(text: str) -> QueueAddress:
    """Return the address that a text names. Raises `CommandFailed`; the message omits the signature."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _usage("the address is malformed", _EXAMPLE) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
        raise _usage("the address must be an https:// address of an account's queues, or of one queue", _EXAMPLE)
    names = [unquote(name) for name in parts.path.split("/") if name]
    account = [names.pop(0)] if names and names[0] == _EMULATOR else []
    if len(names) > 1 or any(not re.fullmatch(r"[a-z0-9](?:-?[a-z0-9]){2,62}", name) for name in names):
        raise _usage("the path of the address must be empty or the name of a queue", _EXAMPLE)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    base = f"{parts.scheme}://{host}{f':{port}' if port else ''}{''.join(f'/{name}' for name in account)}"
    return QueueAddress(base, names[0] if names else "", parts.query)


def _usage(title: str, advice: str) -> CommandFailed:
    return CommandFailed(title, where="--queue-url", advice=advice, status=Exit.USAGE)


class Mailbox:
    """One queue. A queue that the address names exists already, and stays."""

    def __init__(self, address: QueueAddress, name: str, *, wall: Callable[[], float] = time.time) -> None:
        self.name = address.queue or name
        self.given = bool(address.queue)
        self._account = address.account()
        self._http = httpx.Client(timeout=_TIMEOUT, follow_redirects=False, headers={"accept-encoding": "identity"})
        self._wall = wall
        self._taken: set[str] = set()
        """The ids of the messages that were taken."""
        self.offset = OffsetBounds()
        """Storage's time minus this machine's."""

    @property
    def by_login(self) -> bool:
        """True if tokens of `az login` open the queue."""
        return isinstance(self._account.credential, LoginTokens)

    def create(self) -> None:
        """Create the queue, unless it is given. Raises `MailboxRefused`, `MailboxUnreachable`, `CommandFailed`."""
        if not self.given:
            answer = self._call("create the queue", "PUT", f"/{self.name}", {})
            if answer.status_code not in (201, 204):
                raise self._refusal("create the queue", answer)

    def read_once(self) -> None:
        """Show that the queue can be read. Raises like `create`."""
        self._messages()

    def take(self, source: str) -> Iterator[Delivered]:
        """Yield the messages of a source, each once, and delete them. Raises `MailboxRefused`, `MailboxUnreachable`."""
        for _ in range(_MOST_PAGES):
            messages = self._messages()
            for message in messages:
                delivered = parse_message(message)
                if delivered is None or delivered.source != source:
                    continue
                id = message.findtext("MessageId", "")
                if id not in self._taken:
                    # Before it is deleted: what was deleted is not found again.
                    self._taken.add(id)
                    yield delivered
                receipt = {"popreceipt": message.findtext("PopReceipt", "")}
                self._call("delete a message", "DELETE", f"/{self.name}/messages/{wire.percent(id)}", receipt)
            if len(messages) < _PAGE:
                return

    def remove(self) -> None:
        """Remove the queue, unless it is given. Raises `MailboxRefused`, `MailboxUnreachable`."""
        if not self.given:
            answer = self._call("remove the queue", "DELETE", f"/{self.name}", {})
            if answer.status_code not in (204, 404):
                raise self._refusal("remove the queue", answer)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _messages(self) -> list[ElementTree.Element]:
        query = {"numofmessages": str(_PAGE), "visibilitytimeout": str(_HIDDEN)}
        answer = self._call("read the queue", "GET", f"/{self.name}/messages", query)
        if answer.status_code != 200:
            raise self._refusal("read the queue", answer)
        try:
            return list(ElementTree.fromstring(answer.content).iter("QueueMessage"))
        except ElementTree.ParseError:
            raise MailboxUnreachable("the answer does not come from a storage account") from None

    def _call(self, action: str, method: str, path: str, query: Mapping[str, str]) -> httpx.Response:
        account = self._account
        for again in (True, False):
            headers = {"x-ms-version": VERSION}
            run_through(account.credential.authorize(method, account.path + path, query, headers, 0))
            before = self._wall()
            try:
                answer = self._http.request(method, account.url(path, query), headers=headers)
            except httpx.HTTPError as error:
                # The cause stays out: its text may quote the address, and with it a signature.
                raise MailboxUnreachable(f"storage did not answer: {type(error).__name__}") from None
            self.offset.observe(answer.headers.get("date", ""), before, self._wall())
            if answer.status_code >= 500:
                raise MailboxUnreachable(f"storage answered {answer.status_code}")
            if answer.status_code != 401 or not again or not account.credential.refused():
                break
        return answer

    def _refusal(self, action: str, answer: httpx.Response) -> MailboxRefused:
        return MailboxRefused(action, answer.status_code, wire.parse_failure(answer.status_code, answer.content).code)


def parse_message(message: ElementTree.Element) -> Delivered | None:
    """Return the delivery that a message holds; None for the message of another program."""
    try:
        event: dict[str, Any] = json.loads(base64.b64decode(message.findtext("MessageText", ""), validate=True))
        inserted = parsedate_to_datetime(message.findtext("InsertionTime", ""))
        uptime = event.get("tocsinuptimems")
        return Delivered(
            str(event["id"]),
            str(event["source"]),
            _millis(str(event["tocsindue"])),
            _millis(str(event["tocsinfired"])),
            int(event["tocsinlatems"]),
            int(event["tocsinattempt"]),
            round(inserted.timestamp() * 1000),
            None if uptime is None else int(uptime),
            str(event.get("tocsinversion", "")),
        )
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError):
        return None


def _millis(text: str) -> int:
    from datetime import datetime

    from ...core.clock import to_millis

    return to_millis(datetime.fromisoformat(text))
