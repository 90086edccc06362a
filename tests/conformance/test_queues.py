"""Queues: leases, visibility, counts, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.errors import Rejected
from shared.storage.ports import Message

from .conftest import Store

TEXTS = ["plain", "", "é😀 ключ", "<a>&amp;\"'</a>", "\n\r\n\t\x00\x1f", '{"a": [1, 2]}', "x" * 49152, "😀" * 12288]


async def take(store: Store, lease: float = 600.0, limit: int = 32) -> list[Message]:
    return await store.queues.receive(store.queue, limit=limit, lease=lease)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:16])
async def test_a_text_comes_back_as_it_went(store: Store, text: str) -> None:
    await store.queues.send(store.queue, text)
    (message,) = await take(store)
    assert (message.text, message.dequeue_count) == (text, 1)
    assert message.id
    assert message.receipt
    assert message.inserted % 1000 == 0
    assert message.meta["ExpirationTime"] == "Fri, 31 Dec 9999 23:59:59 GMT"


async def test_an_empty_queue_gives_nothing(store: Store) -> None:
    assert await take(store) == []
    assert await store.queues.length(store.queue) == 0


async def test_every_message_is_taken_once_while_leases_last(store: Store) -> None:
    for i in range(40):
        await store.queues.send(store.queue, f"{i}")
    one, two, three = await take(store), await take(store), await take(store)
    assert (len(one), len(two), len(three)) == (32, 8, 0)
    assert sorted(int(message.text) for message in one + two) == list(range(40))
    assert await store.queues.length(store.queue) == 40


async def test_limit_bounds_what_is_taken(store: Store) -> None:
    for i in range(3):
        await store.queues.send(store.queue, f"{i}")
    assert len(await take(store, limit=2)) == 2
    assert len(await take(store, limit=2)) == 1


async def test_a_deleted_message_is_gone(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (message,) = await take(store)
    assert await store.queues.delete(store.queue, message) is True
    assert await store.queues.delete(store.queue, message) is False
    assert await store.queues.length(store.queue) == 0


async def test_a_message_comes_back_when_its_lease_ends_and_the_first_taker_has_lost_it(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (first,) = await take(store, lease=store.short)
    assert await take(store) == []
    (second,) = await store.until(lambda: take(store))
    assert (second.id, second.text, second.dequeue_count) == (first.id, "a", 2)
    assert second.receipt != first.receipt
    assert await store.queues.delete(store.queue, first) is False
    assert await store.queues.delete(store.queue, second) is True


async def test_a_lease_that_ended_still_deletes_while_nobody_else_took_the_message(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (message,) = await take(store, lease=1)
    await store.queues.send(store.queue, "later", visible_in=2)

    async def later_is_there() -> bool:
        # Only the second message may be taken: the first one's receipt must stay the last.
        if store.clock is not None:
            return store.clock.monotonic() > 2
        peeked = await store.queues._transport.call(  # type: ignore[attr-defined]
            "peek", "GET", f"/{store.queue}/messages", query={"peekonly": "true", "numofmessages": "32"}, repeat=True
        )
        return peeked.body.count(b"<QueueMessage>") == 2

    await store.until(later_is_there)
    assert await store.queues.delete(store.queue, message) is True


async def test_a_message_sent_for_later_is_hidden_until_then_and_counted(store: Store) -> None:
    await store.queues.send(store.queue, "later", visible_in=store.short)
    assert await take(store) == []
    assert await store.queues.length(store.queue) == 1
    (message,) = await store.until(lambda: take(store))
    assert (message.text, message.dequeue_count) == ("later", 1)


async def test_renewed_lease_hides_the_message_until_it_ends_and_has_a_receipt_of_its_own(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (message,) = await take(store)
    former = replace(message)
    assert await store.queues.renew(store.queue, message, lease=1) is True
    assert message.receipt != former.receipt
    assert await store.queues.delete(store.queue, former) is False
    assert await store.queues.renew(store.queue, former, lease=600) is False
    (second,) = await store.until(lambda: take(store))
    assert (second.id, second.text, second.dequeue_count) == (message.id, "a", 2)
    assert await store.queues.renew(store.queue, message, lease=600) is False
    assert await store.queues.renew(store.queue, second, lease=600) is True
    assert await store.queues.delete(store.queue, second) is True


async def test_lease_of_nothing_gives_the_message_back_at_once(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (message,) = await take(store)
    assert await store.queues.renew(store.queue, message, lease=0) is True
    (again,) = await store.until(lambda: take(store))
    assert again.dequeue_count == 2
    assert await store.queues.delete(store.queue, again) is True
    assert await store.queues.renew(store.queue, again, lease=30) is False


async def test_a_wrong_receipt_or_id_deletes_nothing(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    (message,) = await take(store)
    assert await store.queues.delete(store.queue, replace(message, receipt="bm9uc2Vuc2U=")) is False
    assert await store.queues.delete(store.queue, replace(message, id="00000000-0000-0000-0000-000000000000")) is False
    assert await store.queues.length(store.queue) == 1


@pytest.mark.parametrize("text", ["x" * 49153, "😀" * 12289, "é" * 24577])
async def test_a_message_over_48_kib_is_rejected(store: Store, text: str) -> None:
    with pytest.raises(Rejected, match=r"^RequestBodyTooLarge"):
        await store.queues.send(store.queue, text)
    assert await store.queues.length(store.queue) == 0


async def test_half_a_surrogate_pair_is_rejected(store: Store) -> None:
    with pytest.raises(Rejected, match=r"^InvalidInput"):
        await store.queues.send(store.queue, "\ud800")


@pytest.mark.parametrize("seconds", [-1.0, 604800.5, float("nan")])
async def test_a_delay_out_of_range_is_rejected(store: Store, seconds: float) -> None:
    with pytest.raises(Rejected, match=r"^OutOfRange"):
        await store.queues.send(store.queue, "a", visible_in=seconds)


async def test_the_longest_delay_is_seven_days(store: Store) -> None:
    await store.queues.send(store.queue, "a", visible_in=604800.0)
    assert await store.queues.length(store.queue) == 1


@pytest.mark.parametrize(("limit", "lease"), [(0, 600.0), (33, 600.0), (1, 0.0), (1, 604801.0)])
async def test_what_can_be_taken_is_bounded(store: Store, limit: int, lease: float) -> None:
    with pytest.raises(Rejected, match=r"^OutOfRange"):
        await take(store, lease=lease, limit=limit)


async def test_a_missing_queue_is_rejected_by_every_verb(store: Store) -> None:
    queues, message = store.queues, Message("id", "receipt", "", 1, 0)
    for call in (
        lambda: queues.send("nowhere", "a"),
        lambda: queues.receive("nowhere"),
        lambda: queues.delete("nowhere", message),
        lambda: queues.length("nowhere"),
    ):
        with pytest.raises(Rejected, match=r"^QueueNotFound"):
            await call()


async def test_ensure_leaves_what_is_there(store: Store) -> None:
    await store.queues.send(store.queue, "a")
    await store.queues.ensure([store.queue, store.queue + "-b"])
    await store.queues.ensure([store.queue + "-b"])
    assert await store.queues.length(store.queue) == 1


@pytest.mark.parametrize("name", ["ab", "Queue", "a--b", "-ab", "ab-", "a" * 64, "", "a_b"])
async def test_a_bad_queue_name_is_rejected(store: Store, name: str) -> None:
    with pytest.raises(Rejected, match=r"^InvalidResourceName"):
        await store.queues.ensure([name])


async def test_transactions_are_counted(store: Store) -> None:
    counts = store.queues.transactions  # type: ignore[attr-defined]
    counts.clear()
    await store.queues.send(store.queue, "a")
    (message,) = await take(store)
    await store.queues.delete(store.queue, message)
    await store.queues.length(store.queue)
    assert counts == {"send": 1, "receive": 1, "messages_received": 1, "delete": 1, "length": 1}
