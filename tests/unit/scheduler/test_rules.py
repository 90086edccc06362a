"""The scheduler's decisions."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import to_datetime
from shared.delivery.channels.model import LONGEST_TIMEOUT
from shared.delivery.channels.rules import retry_after
from shared.scheduler import rules, timings
from shared.scheduler.failures import failed_attempt
from shared.scheduler.properties import attempts
from shared.scheduler.shard import retries
from shared.scheduler.shard.gate import Counts, Gate, GateState
from shared.scheduler.shard.retries import RetryPolicy
from shared.tenants.model import Retry

NOW = 1_800_000_000_000
POLICY = RetryPolicy(attempts=8, first=5_000, longest=3_600_000, within=86_400_000)
STATES = ["scheduled", "retrying", "firing", "delivered", "dead", "lapsed", "cancelled", "moved"]

millis = st.integers(NOW - 100_000, NOW + 400_000)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    state = draw(st.sampled_from(STATES))
    props: dict[str, Any] = {"state": state, "due": draw(millis), "tries": draw(st.integers(0, 30))}
    if state == "retrying":
        props["next"] = draw(millis)
    if state == "firing":
        props["epoch"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        props["expires"] = draw(st.sampled_from([rules.NEVER, 0, 1_000, 100_000]))
    return props


shards = st.dictionaries(st.from_regex(r"e[0-9]{3}", fullmatch=True), rows(), max_size=8)


@given(shards, st.integers(1, 3))
def test_agenda_claims_what_is_near_and_nothing_twice(found: dict[str, Any], epoch: int) -> None:
    agenda = rules.agenda(found, epoch, NOW, lambda _: POLICY)
    assert len(set(agenda.claim)) == len(agenda.claim) and not set(agenda.claim) & set(agenda.settle)
    for rk in agenda.claim:
        props = found[rk]
        assert rules.needs_claim(props, epoch)
        assert props["state"] == "firing" or rules.due_at(props) <= NOW + timings.CLAIM_AHEAD
        assert not rules.lapsed(props, NOW)
    dues = [rules.due_at(found[rk]) for rk in agenda.claim]
    assert dues == sorted(dues)


@given(shards, st.integers(1, 3))
def test_agenda_settles_only_what_nobody_may_still_deliver(found: dict[str, Any], epoch: int) -> None:
    agenda = rules.agenda(found, epoch, NOW, lambda _: POLICY)
    for rk, outcome in agenda.settle.items():
        assert outcome.state in ("lapsed", "dead") and rules.needs_claim(found[rk], epoch)
        assert outcome.state != "lapsed" or rules.lapsed(found[rk], NOW)
        assert outcome.state != "dead" or found[rk]["tries"] >= POLICY.attempts + timings.MOST_LOST_OWNERS


@given(shards, st.integers(1, 3))
def test_agenda_is_finished_rests_or_goes_on_and_no_open_event_is_forgotten(found: dict[str, Any], epoch: int) -> None:
    agenda = rules.agenda(found, epoch, NOW, lambda _: POLICY)
    still_open = {rk for rk, props in found.items() if props["state"] not in rules.FINAL}
    assert agenda.finished == (not still_open)
    running = {rk for rk in still_open if not rules.needs_claim(found[rk], epoch)}
    later = still_open - running - set(agenda.claim) - set(agenda.settle)
    assert (agenda.look is None) == (not later)
    if later:
        first = min(rules.due_at(found[rk]) for rk in later)
        assert agenda.look == first - timings.CLAIM_AHEAD
        assert agenda.rest in (None, first)
    if agenda.rest is not None:
        assert not running and not agenda.claim and not agenda.settle and agenda.rest > NOW + timings.CLAIM_AHEAD


@pytest.mark.parametrize("patience", [timings.REST_BEYOND, timings.REST_BEYOND_BUSY])
def test_owner_stays_as_long_as_its_patience_lasts_and_rests_for_what_is_later(patience: int) -> None:
    for ahead, rests in ((patience, False), (patience + 1, True)):
        agenda = rules.agenda({"e000": {"state": "scheduled", "due": NOW + ahead}}, 1, NOW, lambda _: POLICY, {}, patience)
        assert agenda.rest == (NOW + ahead if rests else None)


@pytest.mark.parametrize("patience", [timings.REST_BEYOND, timings.REST_BEYOND_BUSY])
def test_owner_rests_for_retries_that_are_not_near_in_a_busy_process_too(patience: int) -> None:
    for ahead, rests in ((timings.REST_BEYOND, False), (timings.REST_BEYOND + 1, True)):
        props = {"state": "retrying", "due": NOW, "next": NOW + ahead}
        agenda = rules.agenda({"e000": props}, 1, NOW, lambda _: POLICY, {}, patience)
        assert agenda.rest == (NOW + ahead if rests else None)


@pytest.mark.parametrize("state", ["scheduled", "retrying"])
@pytest.mark.parametrize("count", [1, 300, 990])
def test_owner_does_not_rest_where_the_message_of_the_next_one_would_be_visible_at_once(state: str, count: int) -> None:
    early = timings.WAKE_EARLY + round(count * timings.WAKE_EARLY_EACH)
    for ahead, rests in ((max(early, timings.REST_BEYOND), False), (max(early, timings.REST_BEYOND) + 1, True)):
        due = NOW + ahead
        found = {f"e{number:03d}": {"state": state, "due": due, "next": due} for number in range(count)}
        agenda = rules.agenda(found, 1, NOW, lambda _: POLICY)
        assert agenda.rest == (due if rests else None)
        assert agenda.rest is None or rules.visible_at(agenda.rest, count) > NOW


def test_running_delivery_keeps_the_shard() -> None:
    found = {"e000": {"state": "firing", "due": NOW, "epoch": 4}, "e001": {"state": "scheduled", "due": NOW + 3_600_000}}
    agenda = rules.agenda(found, 4, NOW, lambda _: POLICY)
    assert (agenda.claim, agenda.rest, agenda.finished) == ([], None, False)


def test_claim_of_a_former_owners_event_sets_the_flag_for_good() -> None:
    fresh = rules.claim_props({"state": "scheduled", "due": NOW}, 3)
    assert fresh == {"state": "firing", "epoch": 3, "tries": 1}
    again = rules.claim_props({"state": "firing", "due": NOW, **fresh}, 4)
    history = again.pop("history")
    assert again == {"state": "firing", "epoch": 4, "tries": 2, "flag": True}
    assert attempts.history_of({"history": history}) == [[NOW, "unknown", None, attempts.OWNER_LOST, 0]]
    assert "history" not in rules.claim_props({"state": "retrying", "due": NOW, "next": NOW + 9}, 5)
    assert "flag" not in rules.claim_props({"state": "retrying", "flag": True, "tries": 2}, 5), "a merge keeps what is there"


waits = st.none() | st.floats(0, 604_800)
chances = st.floats(0, 1, exclude_max=True)
pauses = st.integers(1, 10**8)


@given(st.integers(1, 100), chances, pauses, pauses)
def test_back_off_is_within_its_bounds(tries: int, chance: float, first: int, longest: int) -> None:
    policy = replace(POLICY, first=first, longest=longest)
    assert 1 <= retries.back_off(policy, tries, chance) <= max(1, min(longest, first * 2 ** (tries - 1)))


def test_back_off_doubles_to_its_ceiling_and_jitters_over_all_of_it() -> None:
    ceilings = [retries.back_off(POLICY, tries, 1.0) for tries in range(1, 15)]
    assert ceilings[:4] == [5_000, 10_000, 20_000, 40_000] and ceilings[-1] == 3_600_000
    assert retries.back_off(POLICY, 3, 0.0) == 1 and retries.back_off(POLICY, 3, 0.5) == 10_000
    assert retries.back_off(POLICY, 10_000, 1.0) == POLICY.longest


@given(st.integers(1, 200), chances, st.booleans(), waits)
def test_failure_is_tried_again_only_while_attempts_and_time_last(tries: int, chance: float, final: bool, after: float | None) -> None:
    again = retries.after_failure(POLICY, NOW - 1_000, tries, NOW, chance, final=final, retry_after=after)
    if again is None:
        assert final or tries >= POLICY.attempts
    else:
        assert not final and tries < POLICY.attempts and NOW < again <= NOW - 1_000 + POLICY.within


@pytest.mark.parametrize(
    ("props", "answer"),
    [
        ({"state": "scheduled"}, "yes"),
        ({"state": "retrying"}, "yes"),
        ({"state": "scheduled", "flag": True}, "already-firing"),
        ({"state": "retrying", "flag": True}, "already-firing"),
        ({"state": "firing"}, "already-firing"),
        ({"state": "firing", "flag": True}, "already-firing"),
        ({"state": "moving"}, "moving"),
        ({"state": "moved"}, "moved"),
        *(({"state": state}, "already-final") for state in ("delivered", "dead", "cancelled", "lapsed")),
        *(({"state": state, "flag": True}, "already-final") for state in ("delivered", "dead", "lapsed")),
    ],
)
def test_what_may_be_changed(props: Any, answer: str) -> None:
    assert rules.may_change(props) == answer


@pytest.mark.parametrize(
    ("state", "age", "may"),
    [("open", 0, True), ("resting", 0, True), ("done", 10**9, False), ("owned", 44_999, False), ("owned", 45_000, True)],
)
def test_shard_may_be_taken_when_nobody_can_still_start_a_delivery_of_it(state: GateState, age: int, may: bool) -> None:
    assert rules.may_take(Gate(state, "someone"), age) is may


def test_silence_that_lets_others_in_outlasts_the_validity_of_a_beat() -> None:
    drift = 0.01
    silent, valid, beat = timings.OWNER_SILENT / 1000, timings.OWNER_MAY_START, timings.HEARTBEAT_EVERY
    assert silent > valid * (1 + drift) / (1 - drift) + 1
    assert valid > 2 * beat


@given(
    st.sampled_from(["pending", "resting", "sent"]),
    st.integers(NOW - 10**7, NOW + 10**7),
    st.just(0) | st.integers(NOW - 10**5, NOW + 30_000),
    st.integers(0, 40),
)
def test_sweep_sends_once_and_then_looks_after_the_owner_now_and_then(state: str, wake: int, resent: int, rounds: int) -> None:
    todo = rules.dispatch_decision(rules.MessageState(state, wake, resent, rounds), NOW)
    if wake > NOW + timings.DISPATCH_AHEAD:
        assert todo.do == "nothing"
    elif state != "sent":
        assert (todo.do, todo.at) == ("send", wake - timings.WAKE_EARLY)
        many = rules.dispatch_decision(rules.MessageState(state, wake, resent, rounds), NOW, events=990)
        assert many.at == wake - timings.WAKE_EARLIEST
    else:
        quiet = min(NOW - wake, NOW - resent)
        assert todo.do == ("inspect" if quiet >= rules.pause_after(rounds) else "nothing")


def test_pause_between_messages_is_even_at_first_then_doubles_up_to_an_hour() -> None:
    pauses = [rules.pause_after(rounds) for rounds in range(100)]
    assert pauses[: timings.STEADY_ROUNDS + 1] == [timings.OWNER_SILENT] * (timings.STEADY_ROUNDS + 1)
    assert pauses[5:9] == [90_000, 180_000, 360_000, 720_000] and set(pauses[20:]) == {timings.LONGEST_RESEND_PAUSE}
    assert sum(pauses[: timings.STUCK_ROUNDS]) < 15 * 60_000, "a quarter of an hour until a person is called"


@given(st.integers(-(10**14), NOW + 10**11), st.sampled_from([60_000, 10_000, 1_000]), st.integers(0, 9))
def test_shard_opens_in_the_minute_of_its_first_event_before_it_and_not_in_the_past(due: int, part: int, others: int) -> None:
    now = NOW + 17_500
    wake = rules.opens_at(due, now, part=part, others=others)
    assert now <= wake <= max(due, now)
    assert wake // 60_000 == max(due, now) // 60_000
    if due - due % 60_000 > now:
        few = max(due - timings.OPEN_BEFORE, due - due % 60_000)
        assert wake == (due - due % part if part < 60_000 else few if others < timings.LONE_SHARDS else due - due % 60_000)


def test_shard_of_the_running_minute_opens_a_little_before_its_first_event_or_now_when_an_owner_must_come_at_once() -> None:
    assert rules.opens_at(NOW + 30_000, NOW + 10_000) == NOW + 30_000 - timings.OPEN_BEFORE
    assert rules.opens_at(NOW + 30_000, NOW + 10_000, others=timings.LONE_SHARDS) == NOW + 30_000 - timings.OPEN_BEFORE_MANY
    soonest = NOW + 10_000 + timings.WAKE_EARLY
    assert rules.opens_at(soonest + 100, NOW + 10_000) == soonest + 50
    assert rules.opens_at(soonest + 2, NOW + 10_000) == soonest + 1
    assert rules.opens_at(soonest, NOW + 10_000) == NOW + 10_000
    assert rules.opens_at(NOW - 5, NOW + 10_000) == NOW + 10_000
    assert rules.opens_at(NOW + 60_001, NOW + 10_000) == NOW + 60_000


@given(st.lists(st.sampled_from(STATES)))
def test_tally_is_complete(states: list[str]) -> None:
    counts, found = rules.tally(states), Counter(states)
    final = counts.delivered + counts.dead + counts.lapsed + counts.cancelled + counts.moved
    assert counts.accepted == len(states) == final + counts.open
    assert counts.open == found["scheduled"] + found["retrying"] + found["firing"]
    assert counts.retrying == found["retrying"]
    assert rules.tally([]) == Counts()


@given(st.integers(NOW - 10**6, NOW), st.integers(0, 10**6))
def test_event_lapses_after_its_time_and_not_at_it(due: int, expires: int) -> None:
    props = {"due": due, "expires": expires}
    assert rules.lapsed(props, NOW) == (due + expires < NOW)
    assert not rules.lapsed(props, due + expires) and rules.lapsed(props, due + expires + 1)
    assert not rules.lapsed({"due": due}, NOW) and not rules.lapsed({"due": due, "expires": rules.NEVER}, NOW)


def test_wake_up_is_that_of_the_earliest_open_event() -> None:
    found = [
        {"state": "delivered", "due": 1},
        {"state": "retrying", "due": 2, "next": 50},
        {"state": "scheduled", "due": 60},
        {"state": "firing", "due": 70},
    ]
    assert rules.wake_of(found) == 50
    assert rules.wake_of(found[:1]) is None


@given(st.integers(0, 12), chances, waits, st.lists(pauses, min_size=1, max_size=9))
def test_listed_pauses_are_never_shorter_and_at_most_a_fifth_longer(
    tries: int, chance: float, after: float | None, listed: list[int]
) -> None:
    policy = RetryPolicy(len(listed) + 1, min(listed), max(listed), 10**12, tuple(listed))
    again = retries.after_failure(policy, NOW, tries, NOW + 5, chance, final=False, retry_after=after)
    if tries > len(listed):
        assert again is None, "n pauses are n + 1 attempts"
    else:
        # An event without a counted attempt has only been the probe of a breaker.
        pause, asked = listed[max(tries, 1) - 1], 0 if after is None else round(after * 1000)
        assert again is not None and max(pause, asked) <= again - NOW - 5 <= max(asked, pause * 1.2 + 1)


EXAMPLES = {
    "default": retries.policy_of(Retry(), None),
    "three pauses in 5 min": retries.policy_of(Retry.model_validate({"schedule": ["PT5S", "PT30S", "PT1M"], "within": "PT5M"}), None),
    "exponential": retries.policy_of(Retry(attempts=8), None),
}
ASKED = {
    "600 s": 600.0,
    "daily": 86_400.0,
    "5 d": 5 * 86_400.0,
    "7 d": 7 * 86_400.0,
    "an epoch second": retry_after("1795838003", NOW),
    "9999999999": retry_after("9999999999", NOW),
    "a date a year ahead": retry_after(format_datetime(to_datetime(NOW + 366 * 86_400_000), usegmt=True), NOW),
}


@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("took", [0, LONGEST_TIMEOUT])
@pytest.mark.parametrize("policy", EXAMPLES)
@pytest.mark.parametrize("asked", ASKED)
def test_a_receiver_that_asks_to_wait_gets_every_attempt_of_the_policy(policy: str, asked: str, took: int, chance: float) -> None:
    known, now, starts = EXAMPLES[policy], NOW, [NOW]
    for tries in itertools.count(1):
        now += took
        again = retries.after_failure(known, NOW, tries, now, chance, final=False, retry_after=ASKED[asked])
        if again is None:
            break
        assert again >= now + retries.back_off(known, tries, chance), "its own pause is never shortened"
        starts.append(now := again)
    assert len(starts) == known.attempts and starts[-1] <= NOW + known.within


def test_a_receiver_that_asks_for_more_than_the_event_has_left_gets_an_attempt_before_the_event_lapses() -> None:
    again = retries.after_failure(EXAMPLES["default"], NOW, 1, NOW, 0.0, final=False, retry_after=600, until=NOW + 200_000)
    assert again == NOW + 200_000


def test_an_attempt_says_how_long_its_receiver_asked_to_wait_and_how_long_the_event_waits() -> None:
    props = {"due": NOW, "created": NOW, "history": "[]"}
    history = attempts.with_attempt(props, NOW, "retry", 503, "answered 503 Service Unavailable", 5)
    policy = EXAMPLES["three pauses in 5 min"]

    def noted(asked: float | None) -> str:
        outcome = failed_attempt(props, policy, now=NOW, chance=0.0, waited=0, history=history, error="", final=False, retry_after=asked)
        [shown] = attempts.attempts_for_api(outcome.props)
        return str(shown["error"])

    assert noted(None) == noted(5.0) == "answered 503 Service Unavailable"
    assert noted(518_400.0) == "answered 503 Service Unavailable; asked to wait 6 d; waits 1 min 12 s"
    assert "asked to wait more than 7 d; waits" in noted(ASKED["9999999999"])
