"""The machine's clock, judged by the `Date` of the metadata service's answers."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from shared.maintenance.agent.imds.client import clock_error

NOW = 1_800_000_000_000
DATE = formatdate(NOW / 1000, usegmt=True)


@pytest.mark.parametrize(
    ("sent", "received", "error"),
    [
        (0, 0, 0),
        (990, 1000, 0),
        (-100, 10, 0),
        (1500, 1600, 0.5),
        (-900, -600, -0.6),
        (119_000, 119_020, 118),
        (-119_020, -119_000, -119),
        (-120_000, 5_000, 0),
    ],
)
def test_clock_is_wrong_only_as_far_as_the_answer_proves_it(sent: int, received: int, error: float) -> None:
    assert clock_error(DATE, NOW + sent, NOW + received) == error


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_answer_without_a_date_proves_nothing(date: str | None) -> None:
    assert clock_error(date, NOW, NOW) is None
