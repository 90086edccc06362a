"""The queue sender on the in-memory twin, and on stores that fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown, Rejected, Unavailable
from shared.core.version import version
from shared.delivery.channels import close_senders, open_senders, validation
from shared.delivery.channels.model import QueueChannel
from shared.delivery.channels.ports import Target, Verdict
from shared.delivery.channels.queue import QueueSender, identity_accounts
from shared.delivery.channels.validation import find_absent
from shared.storage.azure.account import Identity
from shared.storage.memory import MemoryQueues
from shared.storage.ports import MAX_MESSAGE_BYTES
from tests.texts import assert_text

from .conftest import NOW, http_target, make_delivery, make_settings


def to_queue(queue: str = "orders", account: str | None = None) -> Target:
    return Target("demo", "q", QueueChannel(type="queue", queue=queue, account=account))


async def test_a_delivery_becomes_one_cloudevent_message() -> None:
    queues = MemoryQueues(SettableClock(NOW))
    await queues.ensure(["orders"])
    sender = QueueSender(queues)
    assert (await sender.send(to_queue(), make_delivery())).outcome == "delivered"
    [message] = await queues.receive("orders")
    event = json.loads(message.text)
    assert event["data"] == {"n": 1.0} and event["id"] == "ev-1" and event["source"] == "/tenants/demo/channels/q"
    await sender.close()


async def test_a_message_names_the_age_and_the_version_of_the_process_that_sends_it() -> None:
    clock = SettableClock(NOW)
    queues = MemoryQueues(clock)
    await queues.ensure(["orders"])
    senders = open_senders(make_settings(), queues, clock, {})
    await clock.advance(4.2)
    await senders["queue"].send(to_queue(), make_delivery())
    [message] = await queues.receive("orders")
    event = json.loads(message.text)
    assert (event["tocsinuptimems"], event["tocsinversion"]) == (4200, version())
    await close_senders(senders)


async def test_a_missing_queue_is_tried_again_and_named() -> None:
    verdict = await QueueSender(MemoryQueues(SettableClock(NOW))).send(to_queue(), make_delivery())
    assert verdict == Verdict("retry", None, "queue orders does not exist")


async def test_a_message_over_the_limit_is_final_and_one_at_the_limit_is_not() -> None:
    queues = MemoryQueues(SettableClock(NOW))
    await queues.ensure(["orders"])
    sender = QueueSender(queues)
    verdict = await sender.send(to_queue(), make_delivery(body=b'"' + b"x" * MAX_MESSAGE_BYTES + b'"'))
    assert verdict.outcome == "final" and verdict.error and str(MAX_MESSAGE_BYTES) in verdict.error
    assert (await sender.send(to_queue(), make_delivery(body=b'"' + b"x" * 48_000 + b'"'))).outcome == "delivered"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Rejected("AuthorizationFailure: AccountKey=s3cret"), "refuses the message (AuthorizationFailure)"),
        (Rejected("QueueNotFound (404)"), "does not exist"),
        (Rejected("?"), "refuses the message (no reason given)"),
        (OutcomeUnknown("lost s3cret"), "may have been stored"),
        (Unavailable("429 s3cret"), "cannot be reached"),
    ],
)
async def test_failures_of_the_store_are_tried_again_without_quoting_it(error: Exception, says: str) -> None:
    class Failing(MemoryQueues):
        async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
            raise error

    verdict = await QueueSender(Failing(SettableClock(NOW))).send(to_queue(), make_delivery())
    assert verdict.outcome == "retry" and verdict.error and says in verdict.error and "s3cret" not in verdict.error


ABSENT = [("/queue", "names a queue that does not exist in the service's own account; create it first")]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (None, ABSENT),
        (Rejected("QueueNotFound (404)"), ABSENT),
        (Rejected("AuthorizationPermissionMismatch (403)"), []),
        (Rejected("?"), []),
        (OutcomeUnknown("lost"), []),
        (Unavailable("429 s3cret"), []),
        (TimeoutError(), []),
    ],
)
async def test_only_a_queue_that_is_surely_absent_is_a_fault_of_its_channel(
    error: Exception | None, found: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(MemoryQueues):
        async def length(self, queue: str) -> int:
            if error is not None:
                raise error
            return await super().length(queue)

    sender = QueueSender(Failing(SettableClock(NOW)))
    assert [*await find_absent({"queue": sender}, to_queue().spec)] == found
    assert "s3cret" not in caplog.text


async def test_a_queue_that_is_silent_is_no_fault_of_its_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(MemoryQueues):
        async def length(self, queue: str) -> int:
            return await asyncio.Event().wait()

    monkeypatch.setattr(validation, "ABSENCE_TIMEOUT", 0.01)
    assert [*await find_absent({"queue": QueueSender(Silent(SettableClock(NOW)))}, to_queue().spec)] == []


async def test_queues_of_other_accounts_are_asked_for_there_and_need_an_identity() -> None:
    other = MemoryQueues(SettableClock(NOW))
    own = MemoryQueues(SettableClock(NOW))
    await own.ensure(["orders"])
    senders = {"queue": QueueSender(own, lambda account: other)}
    assert [*await find_absent(senders, to_queue().spec)] == []
    [(pointer, detail)] = await find_absent(senders, to_queue(account="partner1").spec)
    assert pointer == "/queue" and "in account partner1" in detail
    await other.ensure(["orders"])
    assert [*await find_absent(senders, to_queue(account="partner1").spec)] == []
    [(pointer, _)] = await find_absent({"queue": QueueSender(own)}, to_queue(account="partner1").spec)
    assert pointer == "/account"


async def test_another_accounts_queues_are_opened_once_and_closed() -> None:
    clock, opened, closed = SettableClock(NOW), list[str](), list[str]()

    class Noted(MemoryQueues):
        async def close(self) -> None:
            closed.append("other")

    other: Any = Noted(clock)
    await other.ensure(["orders"])

    def open_account(account: str) -> MemoryQueues:
        opened.append(account)
        return other

    class Own(MemoryQueues):
        async def close(self) -> None:
            closed.append("own")

    sender = QueueSender(Own(clock), open_account)
    for _ in range(3):
        assert (await sender.send(to_queue(account="partner1"), make_delivery())).outcome == "delivered"
    assert opened == ["partner1"] and await other.length("orders") == 3
    missing = await sender.send(to_queue("nope", "partner1"), make_delivery())
    assert_text("delivery.no-queue", missing.error, queue="nope", account="partner1")
    await sender.close()
    assert closed == ["other"]


async def test_a_stored_channel_that_names_the_services_own_queue_sends_nothing() -> None:
    def open_account(account: str) -> MemoryQueues:
        raise AssertionError("not opened")

    target = to_queue("tocsin-shards", "ourselves")
    for own in (frozenset({"ourselves", "second"}), None):
        verdict = await QueueSender(MemoryQueues(SettableClock(NOW)), open_account, own).send(target, make_delivery())
        assert verdict.outcome == "final" and verdict.error and "belongs to the service" in verdict.error


async def test_other_accounts_are_reached_by_identity_over_https_in_azures_domain() -> None:
    queues: Any = identity_accounts(make_settings(), SettableClock(NOW))("partner1")
    account = queues._transport.account
    assert account.base == "https://partner1.queue.core.windows.net"
    assert isinstance(account.credential, Identity)
    await queues.close()


async def test_without_an_identity_other_accounts_are_refused_clearly() -> None:
    verdict = await QueueSender(MemoryQueues(SettableClock(NOW))).send(to_queue(account="partner1"), make_delivery())
    assert verdict.outcome == "final" and verdict.error and "no identity" in verdict.error


async def test_a_channel_of_another_type_is_a_bug_of_ours() -> None:
    with pytest.raises(TypeError):
        await QueueSender(MemoryQueues(SettableClock(NOW))).send(http_target("https://example.com/"), make_delivery())
