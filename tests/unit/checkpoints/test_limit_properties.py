"""A turn's holder has stopped before the turn can be ended for its timeout, for all clocks within the bounds of
docs/explain/checkpoints.md ("Why it is safe", 3). True time is in milliseconds; so are limits.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from shared.checkpoints.timeouts import turn_limit

STEP = 1000
OFF = 500
"""A server of the store may be so far from true time, in either direction."""

errors = st.integers(-OFF, OFF)
paces = st.lists(st.tuples(st.integers(1, 60_000), st.floats(0, 1)), min_size=1, max_size=20)


def date(true: int, error: int) -> int:
    """Return the store's time at a true moment, in steps of a second."""
    return (true + error) // STEP * STEP


def earliest(reported: int) -> int:
    """The first true moment at which any server of the store may say so."""
    return reported - OFF


def stops(sent: int, own: int, changes: list[tuple[int, float]], drift: float) -> float:
    """Return the time when a clock that runs as `changes` say, (true milliseconds, 0 for as slow and 1 for as fast as may be), has counted
    `own` from `sent` on; the last of them stays."""
    slowest, fastest = 1 - drift, 1 / (1 - drift)
    true, left = float(sent), float(own)
    for number, (lasts, part) in enumerate(changes, 1):
        rate = slowest + part * (fastest - slowest)
        if number == len(changes) or lasts * rate >= left:
            return true + left / rate
        true, left = true + lasts, left - lasts * rate
    raise AssertionError("unreachable")


@given(
    timeout=st.integers(60_000, 10**7),
    drift=st.floats(0, 0.5),
    granted=st.integers(10**6, 10**9),
    waits=st.integers(0, 10**7),
    way=st.integers(0, 30_000),
    off=st.tuples(errors, errors),
    changes=paces,
)
@example(60_000, 0.3, 10**6, 20_499, 0, (OFF, -OFF), [(1, 0.0)])
def test_the_holder_has_stopped_before_anybody_may_end_its_turn_for_its_time(
    timeout: int, drift: float, granted: int, waits: int, way: int, off: tuple[int, int], changes: list[tuple[int, float]]
) -> None:
    since = date(granted, off[0])
    sent = granted + waits
    age = date(sent + way, off[1]) - since
    allowed = turn_limit(timeout, max(0, age), drift)
    if allowed:
        assert stops(sent, allowed, changes, drift) < earliest(since + timeout)


@given(timeout=st.integers(60_000, 10**7), drift=st.floats(0.05, 0.5))
def test_a_clock_slower_than_the_bound_breaks_it_so_the_bound_is_needed(timeout: int, drift: float) -> None:
    # The slower, the less the two seconds of margin can hide of it: at a tenth of the bound's rate nothing.
    allowed = turn_limit(timeout, 0, drift)
    assert stops(10**6, allowed, [(1, 0.0)], 1 - (1 - drift) / 10) > earliest(date(10**6, 0) + timeout)
