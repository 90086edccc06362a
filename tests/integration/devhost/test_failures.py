"""Failed deliveries are seen in the terminal, and do not flood it."""

import logging
from collections.abc import Iterator

import pytest

from devhost.failures import ACTION, SOURCE, Failures
from tests.texts import assert_text

URL = "http://localhost:7071/api/v1"


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(caplog: pytest.LogCaptureFixture) -> Iterator[Time]:
    caplog.set_level(logging.INFO)
    time = Time()
    failures = Failures(URL, time)
    failures.attach()
    yield time
    failures.detach()


def fail(event: str, channel: str = "orders", state: str = "retrying", error: str = "answered 503") -> None:
    extra = {"action": ACTION, "tenant": "demo", "channel": channel, "event": event, "state": state, "error": error}
    logging.getLogger(SOURCE).debug("An attempt failed", extra=extra)


def test_failed_attempt_is_one_line_that_says_why_and_where_to_look(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    fail("e1")
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert_text(
        "devhost.failed-attempt", record.getMessage(), event="e1", channel="demo/orders", why="answered 503", url=f"{URL}/events/e1"
    )


def test_many_failures_of_a_channel_are_counted_and_others_are_reported_at_once(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(100):
        fail(f"e{number}")
    fail("other", channel="mail")
    fail("end", state="dead", error="answered 404")
    assert [record.getMessage().split(" ")[2] for record in caplog.records] == ["e0", "other", "end"]
    assert "it is dead: answered 404" in caplog.messages[-1]
    time.now += 10
    fail("later")
    assert "(and 99 more since the last line)" in caplog.messages[-1]
    fail("again")
    assert len(caplog.records) == 4


def test_other_records_of_that_logger_pass_as_before(time: Time, caplog: pytest.LogCaptureFixture) -> None:
    source = logging.getLogger(SOURCE)
    source.debug("routine", extra={"action": "shard_lost"})
    source.info("news")
    assert caplog.messages == ["news"]
