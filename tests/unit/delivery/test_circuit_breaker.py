"""The breaker's rules: when it opens, who probes, how it closes; and that no order of answers brings it into a state it cannot leave."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.delivery import circuit_breaker
from shared.delivery.circuit_breaker import CLOSED, OPEN_FIRST, OPEN_LONGEST, PROBE_LEASE, SPAN, Breaker, Tally

NOW = 1_800_000_000_000
OPEN = Breaker("open", since=NOW, until=NOW + OPEN_FIRST, failures=5, opens=1, error="answered 503")
HALF = replace(OPEN, state="half-open", until=NOW + PROBE_LEASE, probe="me")


def failed_in_a_row(tally: Tally, count: int, events: int, at: int = NOW, apart: int = 10) -> list[int]:
    return [tally.failed(f"e{number % events}", at + number * apart) for number in range(count)]


# -- counting


def test_five_failures_in_a_row_of_three_events_open_it() -> None:
    assert failed_in_a_row(Tally(), 5, 3) == [0, 0, 0, 0, 5]


@pytest.mark.parametrize("events", [1, 2])
def test_one_or_two_bad_events_never_open_it(events: int) -> None:
    assert set(failed_in_a_row(Tally(), 200, events)) == {0}


def test_an_answer_ends_the_row() -> None:
    tally = Tally()
    failed_in_a_row(tally, 4, 4)
    tally.answered(NOW + 50, delivered=True)
    assert failed_in_a_row(tally, 5, 5, NOW + 60) == [0, 0, 0, 0, 5]


def refused_in_a_row(tally: Tally, count: int, events: int) -> list[int]:
    return [tally.refusal(f"e{number % events}", NOW + number) for number in range(count)]


def test_refusals_of_three_events_in_turn_count_as_failures() -> None:
    assert refused_in_a_row(Tally(), 5, 3) == [0, 0, 0, 0, 5]
    assert refused_in_a_row(Tally(), 7, 7) == [0, 0, 0, 0, 5, 6, 7]


@pytest.mark.parametrize("events", [1, 2])
def test_refusals_of_one_or_two_events_never_open_it(events: int) -> None:
    assert set(refused_in_a_row(Tally(), 200, events)) == {0}


def test_a_success_between_refusals_makes_them_answers_to_single_events_and_another_answer_does_not() -> None:
    tally = Tally()
    for number in range(100):
        assert not tally.refusal(f"e{number}", NOW)
        assert not tally.refusal(f"f{number}", NOW)
        tally.answered(NOW, delivered=True)
    refused_in_a_row(tally, 2, 2)
    tally.answered(NOW, delivered=False)
    assert [tally.refusal(f"g{number}", NOW) for number in range(3)] == [0, 0, 5]


@pytest.mark.parametrize(
    ("outcome", "status", "refusal"),
    [
        ("retry", 404, True),
        ("retry", 401, True),
        ("retry", 302, True),
        ("final", 404, False),
        ("retry", 409, False),
        ("retry", None, False),
    ],
)
def test_refusals_are_retried_answers_that_a_host_may_give_for_its_receiver(outcome: str, status: int | None, refusal: bool) -> None:
    assert circuit_breaker.is_refusal(outcome, status) is refusal
    assert circuit_breaker.fails_probe(outcome, status) is (refusal or circuit_breaker.is_failure(outcome, status))


def test_failures_far_apart_do_not_count_together() -> None:
    assert set(failed_in_a_row(Tally(), 50, 50, apart=SPAN + 1)) == {0}


@pytest.mark.parametrize(("events", "opens"), [(2, [0] * 15), (3, [0] * 9 + [10, 11, 12, 13, 14, 15])])
def test_half_of_twenty_attempts_failing_opens_it_without_a_row(events: int, opens: list[int]) -> None:
    tally, turned = Tally(), []
    for number in range(15):
        tally.answered(NOW + number, delivered=True)
        turned.append(tally.failed(f"e{number % events}", NOW + number))
    assert turned == opens


def test_fewer_than_half_failing_does_not() -> None:
    tally = Tally()
    for number in range(100):
        tally.answered(NOW + number, delivered=True)
        tally.answered(NOW + number, delivered=True)
        assert not tally.failed(f"e{number}", NOW + number)


@pytest.mark.parametrize(
    ("outcome", "status", "failure"),
    [
        ("retry", None, True),
        ("retry", 500, True),
        ("retry", 503, True),
        ("retry", 429, True),
        ("retry", 408, True),
        ("retry", 425, False),
        ("final", 400, False),
        ("final", 410, False),
        ("final", None, False),
        ("delivered", 200, False),
    ],
)
def test_what_counts_as_a_failure(outcome: str, status: int | None, failure: bool) -> None:
    assert circuit_breaker.is_failure(outcome, status) is failure


# -- turning


def test_closed_turns_open_and_says_why_and_until_when() -> None:
    assert circuit_breaker.opened(CLOSED, NOW, 5, "answered 503", None) == OPEN
    assert circuit_breaker.opened(OPEN, NOW, 5, "", None) is None and circuit_breaker.opened(HALF, NOW, 5, "", None) is None


def test_an_open_breaker_admits_no_probe_before_its_time_and_one_after() -> None:
    assert circuit_breaker.probing(OPEN, OPEN.until - 1, "me") is None
    assert circuit_breaker.probing(CLOSED, NOW, "me") is None
    won = circuit_breaker.probing(OPEN, OPEN.until, "me")
    assert won is not None and (won.state, won.probe, won.until) == ("half-open", "me", OPEN.until + PROBE_LEASE)
    assert circuit_breaker.probing(won, OPEN.until + 1, "other") is None


def test_probe_without_a_result_is_given_up() -> None:
    taken = circuit_breaker.probing(HALF, HALF.until, "other")
    assert taken is not None and taken.probe == "other"
    assert circuit_breaker.probed(taken, HALF.until + 1, "me", False, "", None) is None, "the former probe counts no more"


def test_probe_closes_it_or_opens_it_for_longer() -> None:
    assert circuit_breaker.probed(HALF, NOW, "me", False, "", None) == CLOSED
    worse = circuit_breaker.probed(HALF, NOW, "me", True, "no answer", None)
    assert worse == Breaker("open", since=NOW, until=NOW + 2 * OPEN_FIRST, failures=6, opens=2, error="no answer")


def test_retry_after_is_honoured_up_to_the_longest() -> None:
    assert circuit_breaker.pause(1, 30.0) == 30_000
    assert circuit_breaker.pause(1, 1.0) == OPEN_FIRST
    assert circuit_breaker.pause(1, 86_400.0) == circuit_breaker.pause(99, None) == OPEN_LONGEST


def test_stored_and_read_back_it_is_the_same() -> None:
    for each in (CLOSED, OPEN, HALF, replace(OPEN, error='quote " and \u2028')):
        assert circuit_breaker.parse(each.text()) == each
    assert CLOSED.text() == ""


_STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "probe", "good", "bad"]), st.sampled_from(["a", "b"]), st.integers(0, 200_000)), max_size=60
)


@given(_STEPS)
def test_whatever_happens_one_probes_at_a_time_and_there_is_a_way_out(steps: list[tuple[str, str, int]]) -> None:
    now, state = NOW, CLOSED
    probes: dict[str, int] = {}
    for what, who, later in steps:
        now += later
        new: Breaker | None
        match what:
            case "open":
                new = circuit_breaker.opened(state, now, 5, "x", None)
            case "probe":
                new = circuit_breaker.probing(state, now, who)
                if new is not None:
                    assert all(now >= until for until in probes.values()), "a second probe while one is under way"
                    probes = {who: new.until}
            case _:
                new = circuit_breaker.probed(state, now, who, what == "bad", "x", None)
                if new is not None:
                    assert who in probes
                    probes = {}
        state = new or state
        assert state.until - now <= max(OPEN_LONGEST, PROBE_LEASE)
        assert (state.state == "closed") == (state == CLOSED) and bool(state.probe) == (state.state == "half-open")
    if state.state != "closed":
        won = circuit_breaker.probing(state, state.until, "z")
        assert won is not None and circuit_breaker.probed(won, state.until + 1, "z", False, "", None) == CLOSED


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40_000), st.integers(0, 5)), max_size=200))
def test_it_never_opens_for_fewer_than_five_failures_or_three_events(answers: list[tuple[bool, int, int]]) -> None:
    tally, now, since = Tally(), NOW, list[str]()
    for good, later, event in answers:
        now += later
        if good:
            tally.answered(now, delivered=True)
            continue
        since.append(f"e{event}")
        turned = tally.failed(f"e{event}", now)
        if turned:
            assert turned >= circuit_breaker.IN_A_ROW and len(set(since)) >= circuit_breaker.OF_EVENTS
            assert len(since) >= turned
            tally, since = Tally(), []


def test_probes_become_rare_when_the_receiver_has_been_down_for_an_hour() -> None:
    breaker = circuit_breaker.opened(CLOSED, NOW, 5, "x", None)
    assert breaker is not None
    pauses: list[tuple[int, int]] = []
    while breaker.until < NOW + 24 * 3_600_000:
        at = breaker.until
        probe = circuit_breaker.probing(breaker, at, "me")
        assert probe is not None
        again = circuit_breaker.probed(probe, at, "me", True, "x", 3_600.0 if len(pauses) % 2 else None)
        assert again is not None and again.since == NOW
        pauses.append((at - NOW, again.until - at))
        breaker = again
    assert max(pause for at, pause in pauses if at < 3_600_000) == 120_000
    assert {pause for at, pause in pauses if at >= 3_600_000} == {900_000}
    assert len(pauses) <= 34 + 4 * 23, "the probes of a day"
