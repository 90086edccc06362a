"""A message that is sent once more keeps the id and the time of the first one, and its text byte for byte."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Problem
from shared.scheduler.ingest.messages import (
    MARK,
    MAX_PRODUCER_MESSAGE,
    carried_message,
    carry_message,
    parse_signed_message,
    sign_message,
    signing_key,
)
from shared.storage.ports import MAX_MESSAGE_BYTES, Message
from tests.unit.scheduler.harness import START

KEY = signing_key("a key")
FIRST = Message("1c0f4e1e-7a53-4f65-a6f0-0d8fdc2b9d34", "r1", '{"tenant":"demo"}', 4, START)


def copy(text: str) -> Message:
    """The message with which `text` comes back."""
    return Message("another id", "r7", text, 1, START + 60_000)


@given(st.one_of(st.text(max_size=40).filter(lambda text: not text.startswith(MARK)), st.just("[" * 200), st.just('","message":"')))
def test_any_text_comes_back_as_it_was_under_its_first_id_and_time(text: str) -> None:
    carried = carry_message(KEY, dataclasses.replace(FIRST, text=text))
    assert carried_message(KEY, copy(carried)) == Message(FIRST.id, "r7", text, 1, START)
    again = carry_message(KEY, carried_message(KEY, copy(carried)))
    assert again == carried, "also when it fails again"


def test_form_of_a_carried_message() -> None:
    assert carry_message(KEY, FIRST).partition(".")[2].partition(".")[2] == (
        '{"id":"1c0f4e1e-7a53-4f65-a6f0-0d8fdc2b9d34","inserted":1800000000000,"message":{"tenant":"demo"}}'
    )


def test_largest_message_of_a_producer_can_be_carried_and_larger_ones_stay_as_they_are() -> None:
    text = "x" * MAX_PRODUCER_MESSAGE
    carried = carry_message(KEY, dataclasses.replace(FIRST, text=text))
    assert carried_message(KEY, copy(carried)).text == text and len(carried.encode()) <= MAX_MESSAGE_BYTES
    text = "x" * MAX_MESSAGE_BYTES
    assert carry_message(KEY, dataclasses.replace(FIRST, text=text)) == text


@pytest.mark.parametrize("text", ["\udcff", f"{MARK}\udcff"])
def test_bytes_that_no_queue_takes_are_not_carried(text: str) -> None:
    with pytest.raises(Problem) as refused:
        carry_message(KEY, dataclasses.replace(FIRST, text=text))
    assert (refused.value.status, refused.value.code) == (422, "malformed-json")


def test_messages_of_the_service_are_sent_as_they_are() -> None:
    text = sign_message(KEY, [])
    assert carry_message(KEY, dataclasses.replace(FIRST, text=text)) == text
    assert carried_message(KEY, copy(text)) == copy(text)


@pytest.mark.parametrize("change", [lambda text: text.replace("1c0f", "2c0f"), lambda text: MARK + "0" * 32 + text[len(MARK) + 32 :]])
def test_nobody_else_can_give_a_message_the_id_of_another(change: object) -> None:
    assert callable(change)
    with pytest.raises(Problem) as refused:
        carried_message(KEY, copy(change(carry_message(KEY, FIRST))))
    assert refused.value.status == 403


def test_a_release_that_does_not_know_carried_messages_raises_and_leaves_them_in_the_queue() -> None:
    # A `Problem` would make a reject of the message.
    with pytest.raises(AssertionError):
        parse_signed_message(KEY, carry_message(KEY, FIRST))
