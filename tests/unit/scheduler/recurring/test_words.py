"""Cron expressions in words."""

from __future__ import annotations

from random import Random

import pytest

from shared.scheduler.recurring.cron import MAX_LENGTH, NICKNAMES, check
from shared.scheduler.recurring.words import in_words

from .oracle import draw, draw_special


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("30 10 LW * *", "at 10:30 on the last weekday of each month"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0 9,17 * * *", "at 09:00 and 17:00 every day"),
        ("15 30 9 * * *", "at 09:30:15 every day"),
        ("0 * * * *", "at minute 0 of every hour"),
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/30 * * * * *", "every 30 seconds"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("*/7 * * * *", "at every 7th minute from 0 to 56 of every hour"),
        ("5-10 * * * *", "at minutes 5 to 10 of every hour"),
        ("15 * * * * *", "at second 15 of every minute"),
        ("15 30 * * * *", "at second 15 of minute 30 of every hour"),
        ("*/10 */20 * * * *", "every 10 seconds of minutes 0, 20 and 40 of every hour"),
        ("0,30 */5 9-17 * * *", "every 30 seconds of every 5th minute from 0 to 55 of hours 9 to 17 every day"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("* 8-10,20 * * *", "every minute from 08:00 to 10:59 and from 20:00 to 20:59 every day"),
        ("* */2 * * *", "every minute of every 2nd hour from 0 to 22 every day"),
        ("0 9-17 * * MON-FRI", "every hour from 09:00 to 17:00 on Monday to Friday"),
        ("30 */2 * * *", "every 2 hours from 00:30 to 22:30 every day"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of each month and also on every Friday"),
        ("0 0 0 13 * FRI", "at 00:00 on day 13 of each month if it is Friday"),
        ("0 0 */2 * FRI", "at 00:00 on every 2nd day from day 1 to day 31 of each month if it is Friday"),
        ("0 0 0 1-7 * MON,TUE", "at 00:00 on days 1 to 7 of each month if it is Monday or Tuesday"),
        ("0 0 15W * *", "at 00:00 on the weekday nearest to day 15 of each month"),
        ("0 9 1,15,L * *", "at 09:00 on days 1 and 15 and the last day of each month"),
        ("0 9 ? * FRI#2", "at 09:00 on the 2nd Friday of each month"),
        ("0 9 L * ?", "at 09:00 on the last day of each month"),
        ("0 9 ? JAN 5L", "at 09:00 on the last Friday of January"),
        ("0 9 * * 7#1", "at 09:00 on the 1st Sunday of each month"),
        ("0 9 * * MON,FRI#2", "at 09:00 on Monday and the 2nd Friday of each month"),
        ("0 0 0 L 2 SUN#5", "at 00:00 on the last day of February if it is the 5th Sunday"),
        ("0 0 13 6 MON,FRIL", "at 00:00 on day 13 of June and also on every Monday and the last Friday in June"),
        ("0 0 1 */3 *", "at 00:00 on day 1 of January, April, July and October"),
        ("0 6 * 6-8 *", "at 06:00 every day in June to August"),
        ("* * * 12 *", "every minute every day in December"),
        ("0 6 * 1,7 MON", "at 06:00 on Monday in January and July"),
        ("0 0 * * 6,0", "at 00:00 on Saturday and Sunday"),
        ("0 0 * * 5-7", "at 00:00 on Friday to Sunday"),
        ("0 0 * * TUE-SAT", "at 00:00 on Tuesday to Saturday"),
        ("0 0 1-31 * MON", "at 00:00 every day"),
        ("0 0 21-22 3 *", "at 00:00 on days 21 and 22 of March"),
        ("@weekly", "at 00:00 on Sunday"),
        ("@yearly", "at 00:00 on day 1 of January"),
    ],
)
def test_expression_reads_as_words(expression: str, words: str) -> None:
    assert in_words(check(expression), "Europe/Berlin") == f"{words}, in Europe/Berlin"


def test_every_expression_has_words_of_a_bounded_length() -> None:
    random = Random(3)
    drawn = [draw(random) for _ in range(400)] + [draw_special(random, seconds=number % 2 == 0) for number in range(400)]
    longest = max(len(in_words(each.text, "UTC")) for each in drawn)
    crowded = ",".join(str(value) for value in range(0, 59, 2))
    dense = f"{crowded},59 {crowded} 1,3,4,6,7,9,10 1W,LW 1,3,5 MON#1,TUE#2"
    assert len(dense) < MAX_LENGTH
    assert 40 < longest < 500 and len(in_words(check(dense), "UTC")) < 500
    assert all(in_words(each, "UTC") for each in NICKNAMES)


def test_same_values_read_the_same_however_they_are_written() -> None:
    same = [("*/20 * * * *", "0,20,40 * * * *"), ("0 0 * * SUN", "0 0 ? * 7"), ("0 0 1-31 * *", "@daily"), ("0 0 0 L * ?", "0 0 l * *")]
    for one, other in same:
        assert in_words(check(one), "UTC") == in_words(check(other), "UTC")
