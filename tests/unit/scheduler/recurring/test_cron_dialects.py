"""Cron expressions of Quartz, Spring, cron4j and crontab, rewritten as schedules read them."""

from __future__ import annotations

import pytest

from shared.scheduler.recurring.cron import check
from shared.scheduler.recurring.cron_dialects import Dialect, rewritten


@pytest.mark.parametrize(
    ("dialect", "expression", "expected"),
    [
        # The examples of Quartz's CronTrigger Tutorial.
        ("quartz", "0 0 12 * * ?", "0 12 * * *"),
        ("quartz", "0 15 10 ? * *", "15 10 * * *"),
        ("quartz", "0 15 10 * * ? *", "15 10 * * *"),
        ("quartz", "0 * 14 * * ?", "* 14 * * *"),
        ("quartz", "0 0/5 14,18 * * ?", "0-59/5 14,18 * * *"),
        ("quartz", "0 10,44 14 ? 3 WED", "10,44 14 * 3 WED"),
        ("quartz", "0 15 10 ? * MON-FRI", "15 10 * * MON-FRI"),
        ("quartz", "0 15 10 L * ?", "15 10 L * *"),
        ("quartz", "0 15 10 ? * 6L", "15 10 * * 5L"),
        ("quartz", "0 15 10 ? * 6#3", "15 10 * * 5#3"),
        ("quartz", "0 0 12 1/5 * ?", "0 12 1-31/5 * *"),
        ("quartz", "0 11 11 11 11 ?", "11 11 11 11 *"),
        # Weekdays count from Sunday = 1, L alone is Saturday, and ranges may run backwards.
        ("quartz", "0 15 10 ? * 2-6", "15 10 * * 1-5"),
        ("quartz", "0 0 12 ? * 1,7", "0 12 * * 0,6"),
        ("quartz", "0 0 12 ? * L", "0 12 * * SAT"),
        ("quartz", "0 0 12 ? * 2/2", "0 12 * * 1-6/2"),
        ("quartz", "0 0 12 ? * 6-2", "0 12 * * 5-6,0-1"),
        ("quartz", "30 0 22-2 ? NOV-FEB FRI-MON", "30 0 22-23,0-2 * 11-12,1-2 5-6,0-1"),
        ("quartz", "0 0 12 lw * ?", "0 12 LW * *"),
        ("quartz", "0 0 12 15W * ?", "0 12 15W * *"),
        # Both day fields must match, as they do in six fields.
        ("spring", "0 0 8 * * 1-5", "0 8 * * 1-5"),
        ("spring", "0 0 12 1 * MON", "0 0 12 1 * MON"),
        ("spring", "*/10 * * * * *", "*/10 * * * * *"),
        ("spring", "0 0 0 ? * 5#2", "0 0 * * 5#2"),
        ("spring", "0 0 0 LW * *", "0 0 LW * *"),
        ("cron4j", "30 2 * * 0,6", "30 2 * * 0,6"),
        ("cron4j", "0 12 1 * MON", "0 0 12 1 * MON"),
        ("cron4j", "0 12 L * *", "0 12 L * *"),
        ("unix", "0 12 1 * MON", "0 12 1 * MON"),
        ("unix", "5/10 9-17 * * MON-FRI", "5-59/10 9-17 * * MON-FRI"),
    ],
)
def test_expression_of_another_scheduler_is_rewritten(dialect: Dialect, expression: str, expected: str) -> None:
    assert check(rewritten(expression, dialect)) == expected


@pytest.mark.parametrize(
    ("dialect", "expression", "reason"),
    [
        ("quartz", "0 15 10 ? * MON-FRI 2030", "a year of * at most"),
        ("quartz", "0 12 * * *", "six fields"),
        ("quartz", "0 15 10 L-2 * ?", "only L and LW"),
        ("quartz", "0 15 10 L-2W * ?", "only L and LW"),
        ("quartz", "0 0 12 ? * 0", "values are 1 (Sunday) to 7"),
        ("quartz", "0 0 12 ? * 8", "values are 1 (Sunday) to 7"),
        ("quartz", "0 0 12 ? * XYZ-2", "day of week: values are"),
        ("spring", "0 0 12 ? * L", "day of week: expected"),
        ("spring", "0 12 * * *", "six fields"),
        ("cron4j", "0 0 12 * * *", "five fields"),
        ("unix", "0 0 12 * * *", "five fields"),
        ("unix", "22-2 * * * *", "the range runs backwards"),
    ],
)
def test_expression_that_a_schedule_cannot_express_is_refused(dialect: Dialect, expression: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        check(rewritten(expression, dialect))
    assert reason in str(refused.value)
