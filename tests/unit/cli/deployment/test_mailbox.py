"""The queue of a run: where its address may lead, what is read from it, and what is never shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from shared.cli.deployment import mailbox as module
from shared.cli.deployment.mailbox import LoginTokens, Mailbox, MailboxRefused, MailboxUnreachable, parse_address
from shared.cli.failures import CommandFailed
from shared.storage.azure.account import SharedKey, Signature

SECRET = "sv=2022&sig=s3cret"
HOME = "https://home.queue.core.windows.net"
SOURCE = "/tenants/t/channels/check"


@pytest.mark.parametrize(
    ("text", "base", "queue", "kind"),
    [
        (HOME, HOME, "", LoginTokens),
        (f"{HOME}/", HOME, "", LoginTokens),
        ("https://home.queue.core.usgovcloudapi.net", "https://home.queue.core.usgovcloudapi.net", "", LoginTokens),
        ("https://home.z12.queue.storage.azure.net/box", "https://home.z12.queue.storage.azure.net", "box", LoginTokens),
        (f"{HOME}/box?{SECRET}", HOME, "box", Signature),
        (f"https://queues.example?{SECRET}", "https://queues.example", "", Signature),
        ("http://127.0.0.1:10001/devstoreaccount1", "http://127.0.0.1:10001/devstoreaccount1", "", SharedKey),
        ("http://localhost:10001/devstoreaccount1/box", "http://localhost:10001/devstoreaccount1", "box", SharedKey),
        (f"http://[::1]:1/devstoreaccount1?{SECRET}", "http://[::1]:1/devstoreaccount1", "", Signature),
    ],
)
def test_address_names_account_queue_and_credential(text: str, base: str, queue: str, kind: type) -> None:
    address = parse_address(text)
    assert (address.base, address.queue) == (base, queue)
    assert isinstance(address.account().credential, kind) and "s3cret" not in repr(address)


@pytest.mark.parametrize(
    "text",
    [
        "http://home.queue.core.windows.net",
        "https://home.queue.core.windows.net.evil.example",
        "https://evil.example",
        "https://home.queue.core.windows.net:8443",
        "https://home.blob.core.windows.net",
        "https://127.0.0.1/devstoreaccount1x",
        "https://10.0.0.1:10001/devstoreaccount1",
    ],
)
def test_a_token_of_az_login_goes_to_azures_queues_only(text: str) -> None:
    # The address may come from whoever answers for the service.
    with pytest.raises(CommandFailed, match="token of az login"):
        parse_address(text).account()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "home",
        "ftp://home.example?" + SECRET,
        f"https://user:pw@home.example?{SECRET}",
        f"{HOME}/a/b?{SECRET}",
        f"{HOME}/UP?{SECRET}",
        f"{HOME}/..%2fx?{SECRET}",
        f"https://home.example:port?{SECRET}",
        f"https://[::1?{SECRET}",
    ],
)
def test_a_malformed_address_is_refused_without_showing_the_signature(text: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        parse_address(text)
    assert "s3cret" not in failed.value.text() and "--queue-url" in failed.value.text()


def test_a_signature_is_not_sent_unencrypted() -> None:
    with pytest.raises(CommandFailed, match="https only"):
        parse_address(f"http://queues.example?{SECRET}").account()


def message(id: str, source: str = SOURCE, **changes: Any) -> str:
    event = {
        "id": id,
        "source": source,
        "tocsindue": "2027-01-15T08:00:00.210Z",
        "tocsinfired": "2027-01-15T08:00:00.250Z",
        "tocsinlatems": 40,
        "tocsinattempt": 1,
        **changes,
    }
    return raw_message(id, base64.b64encode(json.dumps(event).encode()).decode())


def raw_message(id: str, text: str) -> str:
    parts = {"MessageId": id, "InsertionTime": "Fri, 15 Jan 2027 08:00:00 GMT", "PopReceipt": f"r+{id}", "MessageText": text}
    inside = "".join(f"<{name}>{value}</{name}>" for name, value in parts.items())
    return f"<QueueMessage>{inside}</QueueMessage>"


type Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer, str], Mailbox]:
    real = httpx.Client

    def open_box(answer: Answer, address: str = f"{HOME}?{SECRET}") -> Mailbox:
        monkeypatch.setattr(module.httpx, "Client", lambda **given: real(transport=httpx.MockTransport(answer), **given))
        return Mailbox(parse_address(address), "made")

    return open_box


def test_own_messages_are_taken_and_deleted_and_others_stay(box: Any) -> None:
    deleted: list[str] = []
    texts = [
        message("a", tocsinuptimems=1500, tocsinversion="0.2.0"),
        message("b", source="/tenants/other/channels/check"),
        raw_message("c", "no base64!"),
        raw_message("d", base64.b64encode(b"[1]").decode()),
        message("e", tocsindue="never"),
        message("f"),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            deleted.append(f"{request.url.path} {parse_qs(urlsplit(str(request.url)).query)['popreceipt'][0]}")
            return httpx.Response(204)
        return httpx.Response(200, text=f"<QueueMessagesList>{''.join(texts)}</QueueMessagesList>")

    first, second = list(box(answer).take(SOURCE))
    assert (first.id, first.late_ms, first.uptime_ms, first.version, first.fired - first.due) == ("a", 40, 1500, "0.2.0", 40)
    assert (second.id, second.uptime_ms, second.version) == ("f", None, "")
    assert deleted == ["/made/messages/a r+a", "/made/messages/f r+f"]


def test_a_queue_that_another_program_fills_does_not_hold_up_the_run(box: Any) -> None:
    reads = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal reads
        reads += 1
        return httpx.Response(200, text=f"<QueueMessagesList>{message('x', 'other') * 32}</QueueMessagesList>")

    assert list(box(answer).take(SOURCE)) == [] and 1 < reads <= 100


def test_a_refusal_has_its_status_and_code_and_no_secret(box: Any) -> None:
    text = f"<Error><Code>AuthorizationPermissionMismatch</Code><Message>{SECRET}</Message></Error>"
    mailbox = box(lambda request: httpx.Response(403, text=text))
    for step in (mailbox.create, mailbox.remove, lambda: list(mailbox.take(SOURCE))):
        with pytest.raises(MailboxRefused) as refused:
            step()
        assert (refused.value.status, refused.value.code) == (403, "AuthorizationPermissionMismatch")
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("what", ["503", "no connection", "html"])
def test_storage_that_does_not_answer_is_unreachable(box: Any, what: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if what == "no connection":
            raise httpx.ConnectError(f"no route to {request.url}")
        return httpx.Response(503) if what == "503" else httpx.Response(200, text="<html>")

    with pytest.raises(MailboxUnreachable) as failed:
        list(box(answer).take(SOURCE))
    assert "s3cret" not in str(failed.value)


def test_a_queue_that_is_given_is_neither_created_nor_removed(box: Any) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.path}")
        return httpx.Response(200, text="<QueueMessagesList/>")

    mailbox = box(answer, f"{HOME}/given?{SECRET}")
    mailbox.create()
    mailbox.read_once()
    mailbox.remove()
    assert asked == ["GET /given/messages"] and mailbox.name == "given"


def test_a_token_that_storage_refuses_is_asked_for_once_more(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    tokens = iter(["old", "new"])
    monkeypatch.setattr(module, "LoginTokens", lambda: LoginTokens(lambda: json.dumps({"accessToken": next(tokens), "expires_on": 9e9})))

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(401 if seen[-1] == "Bearer old" else 200, text="<QueueMessagesList/>")

    assert list(box(answer, HOME).take(SOURCE)) == [] and seen == ["Bearer old", "Bearer new"]


def test_a_message_that_storage_did_not_delete_counts_once(box: Any) -> None:
    fails = iter([httpx.Response(503), httpx.Response(204)])

    def answer(request: httpx.Request) -> httpx.Response:
        return (
            next(fails)
            if request.method == "DELETE"
            else httpx.Response(200, text=f"<QueueMessagesList>{message('a')}</QueueMessagesList>")
        )

    mailbox, found = box(answer), list[str]()
    with pytest.raises(MailboxUnreachable):
        for each in mailbox.take(SOURCE):
            found.append(each.id)
    assert list(mailbox.take(SOURCE)) == [] and found == ["a"]
