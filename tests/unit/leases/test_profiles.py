"""Profiles that are safe, refusals that name the inequality, and moments that cannot be mixed up."""

from __future__ import annotations

from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mypy import api

from shared.engine.validity import DRIFT, ReceivedAt, SentAt
from shared.leases import rules
from shared.leases.profiles import PROFILES, Profile, unsafe_reason
from tests.paths import ROOT


@pytest.mark.parametrize("name", list(PROFILES))
def test_the_named_profiles_are_safe(name: str) -> None:
    assert unsafe_reason(PROFILES[name], name=name) is None


@pytest.mark.parametrize(
    ("profile", "drain", "reason"),
    [
        (Profile(5, 15, 16), 10, "takeover >= validity * 1.01/0.99 + 1 does not hold: 16 < 16.3"),
        (Profile(6, 15, 18), 10, "validity >= 3 * beat does not hold: 15 < 18"),
        (PROFILES["seed"], 10, "validity >= 3 * beat does not hold: 180 < 360"),
        (PROFILES["default"], 15, "drain < validity does not hold: 15 >= 15"),
        (Profile(0, 15, 18), 10, "must be positive"),
        (Profile(5, float("nan"), 18), 10, "must be positive"),
    ],
)
def test_a_refusal_names_the_inequality_and_its_numbers(profile: Profile, drain: float, reason: str) -> None:
    assert reason in (unsafe_reason(profile, drain) or "")


@given(st.floats(0.1, 100), st.floats(0.1, 400), st.floats(0.1, 900), st.floats(-DRIFT, DRIFT), st.floats(-DRIFT, DRIFT))
def test_no_accepted_profile_lets_drifting_clocks_overlap(beat: float, validity: float, takeover: float, mine: float, other: float) -> None:
    if unsafe_reason(Profile(beat, validity, takeover)) is None:
        acts_until = SentAt(0).expires(validity) / (1 + mine)
        takes_over = ReceivedAt(0).ripens(takeover) / (1 + other)
        assert takes_over > acts_until


MIXED = """
from shared.leases.rules import ServerObservation, later_send
from shared.leases import rules
from shared.engine.validity import ReceivedAt, SentAt
later_send(None, ReceivedAt(0))
ServerObservation("i", 1, SentAt(0))
"""


def test_the_rules_ask_for_the_one_moment_they_may_count_from() -> None:
    assert get_type_hints(rules.later_send)["sent"] is SentAt
    assert get_type_hints(rules.BeatAttempt)["sent"] is SentAt
    assert get_type_hints(rules.ServerObservation)["first"] is ReceivedAt
    assert get_type_hints(rules.is_silent)["at"] is ReceivedAt
    assert not issubclass(SentAt, ReceivedAt) and not issubclass(ReceivedAt, SentAt)


@pytest.mark.long
def test_the_type_checker_refuses_one_moment_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    said, _, status = api.run(["--config-file=", "--strict", "--follow-imports=silent", "-c", MIXED])
    assert status == 1
    assert 'incompatible type "ReceivedAt"; expected "SentAt"' in said
    assert 'incompatible type "SentAt"; expected "ReceivedAt"' in said
