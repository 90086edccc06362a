"""The rules of instances and of refused connections: decisions without a host."""

import pytest

from devhost.flex import FlexRules, RefusalRules, RefusedTries, RuleError, goes_away, starts_for_tick, wanted_instances


@pytest.mark.parametrize(
    ("visible", "length", "wanted"),
    [(True, 1, 1), (True, 64, 1), (True, 65, 2), (True, 160, 3), (True, 10_000, 4), (False, 10_000, 0), (True, 0, 1)],
)
def test_one_visible_message_wants_instances_for_the_whole_length(visible: bool, length: int, wanted: int) -> None:
    assert wanted_instances(visible=visible, length=length, each=64, most=4) == wanted


def test_an_instance_goes_away_when_it_was_idle_long_enough_and_never_while_it_works() -> None:
    rules = FlexRules(idle=30)
    assert [goes_away(idle, running, rules) for idle, running in ((29.9, 0), (30, 0), (300, 1))] == [False, True, False]


def test_the_group_of_a_timer_starts_ahead_of_its_tick_or_after_it_or_never() -> None:
    assert starts_for_tick(1000.0, FlexRules(cold=4), 5.0) == 991.0
    assert starts_for_tick(1000.0, FlexRules(cold=4, ticks=20.0), 5.0) == 1020.0
    assert starts_for_tick(1000.0, FlexRules(ticks="never"), 5.0) is None


def test_refusals_end_the_host_after_the_time_of_six_tries_and_any_answer_begins_it_anew() -> None:
    tries = RefusedTries(26.0)
    assert [tries.refused(at) for at in (100.0, 110.0, 125.9, 126.0)] == [False, False, False, True]
    tries.answered()
    assert [tries.refused(at) for at in (127.0, 152.0, 153.0)] == [False, False, True]


def test_settings_name_the_rules_that_differ() -> None:
    assert (FlexRules.of(""), FlexRules.of("off"), FlexRules.of("on")) == (None, None, FlexRules())
    assert FlexRules.of("idle=2.5, most=2,ticks=never") == FlexRules(idle=2.5, most=2, ticks="never")
    assert FlexRules.of("ticks=20") == FlexRules(ticks=20.0)
    assert (RefusalRules.of(""), RefusalRules.of("off")) == (RefusalRules(), None)
    assert RefusalRules.of("ends=4") == RefusalRules(ends=4.0)


@pytest.mark.parametrize(
    "text",
    [
        "idle",
        "idle=",
        "idle=x",
        "idle=0",
        "idle=nan",
        "idle=inf",
        "idle=-1",
        "sleep=3",
        "ticks=soon",
        "ticks=-1",
        "most=1.5",
        "most=0",
        "stuck=2",
        "cold=-1",
        ",",
    ],
)
def test_a_wrong_rule_of_flex_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        FlexRules.of(text)


@pytest.mark.parametrize("text", ["ends=0", "ends=-1", "again=-1", "start=never", "idle=30"])
def test_a_wrong_rule_of_refusals_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        RefusalRules.of(text)
