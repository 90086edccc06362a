"""`outlasting` holds for any two clocks within the assumed drift."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.engine.validity import DRIFT, outlasting
from shared.scheduler.mirror.pair import MirrorTimeouts

SPEEDS = st.floats(1 - DRIFT, 1 + DRIFT)


@given(st.floats(0.001, 1e6), SPEEDS, SPEEDS)
def test_a_holder_has_stopped_when_others_may_take_what_it_held(validity: float, holder: float, waiting: float) -> None:
    assert validity / holder <= outlasting(validity) / waiting * (1 + 1e-12)


def test_no_shorter_time_does() -> None:
    assert outlasting(1) / (1 + DRIFT) <= 1 / (1 - DRIFT) * (1 + 1e-12)


def test_an_overtaken_side_has_stopped_before_the_other_serves() -> None:
    waits = MirrorTimeouts()
    assert waits.take > outlasting(1000 * waits.stop)
