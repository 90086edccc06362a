"""The meaning of each status, and the bounds of `Retry-After`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.delivery.channels.ports import Verdict
from shared.delivery.channels.rules import MAX_RETRY_AFTER, judge, one_line, retry_after
from tests.texts import assert_text

from .conftest import NOW


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_2xx_is_delivered(status: int) -> None:
    verdict = judge(status, "120", NOW)
    assert verdict == Verdict("delivered", status)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599, 101, 700])
def test_statuses_that_may_pass_are_tried_again_as_the_receiver_asks(status: int) -> None:
    verdict = judge(status, "120", NOW)
    assert (verdict.outcome, verdict.status, verdict.retry_after) == ("retry", status, 120.0)
    assert verdict.error and str(status) in verdict.error


@pytest.mark.parametrize("status", [400, 405, 406, 410, 413, 414, 415, 422, 501])
def test_answers_that_speak_of_the_request_are_final(status: int) -> None:
    assert judge(status, "120", NOW)[:2] == ("final", status)
    assert judge(status, "120", NOW).retry_after is None


@pytest.mark.parametrize("status", [401, 402, 403, 404, 407, 409, 411, 423, 451, 499])
def test_other_4xx_may_come_from_a_host_that_starts_or_stops_and_are_tried_again(status: int) -> None:
    assert judge(status, "120", NOW)[:2] == ("retry", status)
    assert judge(status, "120", NOW).retry_after == 120.0


@pytest.mark.parametrize("status", [300, 404, 422, 503])
def test_a_channel_may_say_which_answers_are_final(status: int) -> None:
    assert judge(status, None, NOW, final=frozenset({status})).outcome == "final"
    assert judge(status, None, NOW, final=frozenset()).outcome == "retry"


def test_gone_is_final_for_every_channel() -> None:
    assert judge(410, None, NOW, final=frozenset()) == judge(410, None, NOW)


@pytest.mark.parametrize("status", [302, 404, 429, 503])
def test_a_receiver_ends_an_event_by_a_header(status: int) -> None:
    verdict = judge(status, "120", NOW, never=True)
    assert (verdict.outcome, verdict.retry_after) == ("final", None)
    assert verdict.error and verdict.error.endswith("the receiver wants no further attempt")


def test_gone_for_an_events_own_path_says_nothing_about_the_channel() -> None:
    assert judge(410, None, NOW).gone
    own = judge(410, None, NOW, own_target=True)
    assert (own.outcome, own.gone, own.error) == ("final", False, "answered 410 Gone")


def test_gone_says_that_no_more_is_wanted() -> None:
    assert_text("delivery.gone", judge(410, None, NOW).error)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_redirects_are_not_followed_and_say_so(status: int) -> None:
    verdict = judge(status, None, NOW)
    assert verdict.outcome == "retry"
    assert verdict.error and verdict.error.endswith("redirects are not followed")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 30 ", 30.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("99999999", MAX_RETRY_AFTER),
        ("9" * 90, MAX_RETRY_AFTER),
        ("9" * 5000, None),
        ("٣", None),
        ("Fri, 15 Jan 2027 08:00:30 GMT", 29.75),
        ("Friday, 15-Jan-27 08:00:30 GMT", 29.75),
        ("Fri Jan 15 08:00:30 2027", 29.75),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 0.0),
        ("Fri, 15 Jan 2032 07:00:00 GMT", MAX_RETRY_AFTER),
        ("Fri, 99 Jan 2027 07:00:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_capped(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


@given(
    st.integers(-1000, 10_000),
    st.none() | st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ .*"),
    st.integers(0, 10**14),
)
def test_judge_never_raises_and_keeps_its_bounds(status: int, header: str | None, now: int) -> None:
    verdict = judge(status, header, now)
    assert (verdict.outcome == "delivered") == (200 <= status < 300)
    assert verdict.retry_after is None or 0 <= verdict.retry_after <= MAX_RETRY_AFTER
    assert verdict.error is None or ("\n" not in verdict.error and len(verdict.error) <= 500)


@given(st.text(st.characters()), st.integers(1, 600))
def test_one_line_is_one_short_printable_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit and all(char.isprintable() for char in line)
