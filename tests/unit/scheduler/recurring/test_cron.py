"""The grammar of cron expressions, and what is said of those that are wrong."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import pytest

from shared.scheduler.recurring.cron import check
from shared.scheduler.recurring.timing import LocalTimes
from tests.texts import assert_text


@pytest.mark.parametrize(
    "expression",
    [
        "* * * * *",
        "*/5 0-23/2 1,15 JAN-mar Mon-FRI",
        "59 23 31 12 7",
        "0 0 29 2 *",
        "0 0 30 2 MON",
        "  0   9-17 * *\t1-5 ",
        "0 0 * * 0,6,7",
        "0 * * * * *",
        "*/10 0,30 9-17 1,15 JAN-mar Mon-FRI",
        "0 0 L * *",
        "0 0 lw * *",
        "0 0 1,15W,L * *",
        "0 0 ? * fri#2",
        "0 0 31W * ?",
        "0 0 * * 5L,SUNL,7#1,MON",
        "59 59 23 31W 12 ?",
        "0 0 29W 2 *",
    ],
)
def test_five_or_six_fields_are_taken_as_they_are_written(expression: str) -> None:
    assert check(expression) == expression


WRONG = [
    "",
    "* * * *",
    "0 0 * * * * *",
    "60 * * * * *",
    "@reboot",
    "@daily 5 * * *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * * 13 *",
    "* * * * 8",
    "* * * FOO *",
    "MON * * * *",
    "5/10 * * * *",
    "*/60 * * * *",
    "*/0 * * * *",
    "10-20/11 * * * *",
    "* 22-2 * * *",
    "* * * * FRI-SUN",
    "* * W * *",
    "* * 0W * *",
    "* * 32W * *",
    "* * 10-15W * *",
    "* * L-3 * *",
    "* * 1-L * *",
    "* * L/2 * *",
    "* * WL * *",
    "* * L L *",
    "* * ? * *",
    "* * * * ?",
    "* * ? * ?",
    "? * * * *",
    "* * ?,1 * 1",
    "* * * * L",
    "* * * * 8L",
    "* * * * 5#0",
    "* * * * 5#6",
    "* * * * FRI#L",
    "* * * * 1-5#2",
    "* * * * 5W",
    "0 0 31W 2 *",
    "0 0 30W FEB ?",
    "0 0 0 30 2 MON",
    "0 0 0 15W * SAT",
    "0 0 0 8-31 * MON#1",
    "0 0 0 L 4 5#4",
    "1,,2 * * * *",
    "1-2-3 * * * *",
    "-1 * * * *",
    "\u0661 * * * *",
    "*/1/2 * * * *",
    "* * 30 2 *",
    "0 0 31 4,6,9,11 *",
    "0 0 30-31 FEB */2",
    "0," * 200 + "0 * * * *",
]


def test_faults_are_reported_by_field() -> None:
    found = []
    for expression in WRONG:
        with pytest.raises(ValueError) as wrong:
            check(expression)
        found.append(f"{expression[:30]}: {wrong.value}")
    assert_text("schedule.wrong-cron", found)


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        # Neither starts with *: either one.
        ("0 0 13 * FRI", [1, 8, 13, 15, 22, 29]),
        # One of them starts with *: both.
        ("0 0 */2 * FRI", [1, 15, 29]),
        ("0 0 13 * *", [13]),
        ("0 0 * * FRI", [1, 8, 15, 22, 29]),
        ("0 0 ? * FRI", [1, 8, 15, 22, 29]),
        ("0 0 L * FRIL", [29, 31]),
        ("0 0 */2 * FRIL", [29]),
        # Six fields: always both.
        ("0 0 0 13 * FRI", []),
        ("0 0 0 1-15 * FRI", [1, 8, 15]),
        ("0 0 0 LW * FRI", [29]),
    ],
)
def test_days_of_five_fields_follow_vixies_rule_and_those_of_six_match_both(expression: str, days: list[int]) -> None:
    found = islice(LocalTimes(expression, datetime(2026, 12, 31, 12)), 9)
    assert [each.day for each in found if each < datetime(2027, 2, 1)] == days


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        (" @Annually ", "0 0 1 1 *"),
    ],
)
def test_nicknames_mean_their_five_fields_and_stay_as_written(nickname: str, fields: str) -> None:
    assert check(nickname) == nickname
    start = datetime(2026, 12, 31, 12)
    assert list(islice(LocalTimes(nickname, start), 5)) == list(islice(LocalTimes(fields, start), 5))


def test_rare_days_are_found_across_decades() -> None:
    # 29 February on a weekend; 2100 is no leap year.
    found = islice(LocalTimes("0 0 29 2 */6", datetime(2026, 1, 1)), 6)
    assert [each.year for each in found] == [2032, 2048, 2060, 2076, 2088, 2116]
