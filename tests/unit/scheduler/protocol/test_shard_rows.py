"""The rows of a shard: what is kept about them is what the rows say."""

from __future__ import annotations

import random
from typing import Final

from shared.scheduler import rules
from shared.scheduler.keys import event_row
from shared.scheduler.properties.owed import OWED
from shared.scheduler.properties.work_rows import WORK
from shared.scheduler.protocol.shard_rows import ShardRows
from shared.storage.ports import Props, Row

STATES: Final = ("scheduled", "firing", "retrying", "delivered", "dead", "lapsed", "cancelled", "moved")


def owes(props: Props) -> bool:
    return bool(props.get(OWED))


def a_row(number: int, chance: random.Random) -> Row:
    props: Props = {"state": chance.choice(STATES)}
    if chance.random() < 0.3:
        props[OWED] = chance.choice(["callback", ""])
    if chance.random() < 0.3:
        props[WORK] = "1"
    return Row("shard", event_row(number), props, "1", 0, 0)


def test_what_is_kept_about_rows_follows_each_change() -> None:
    chance = random.Random(38)
    rows = ShardRows(owes, [a_row(number, chance) for number in range(20)])
    for _ in range(500):
        row = a_row(chance.randrange(25), chance)
        rows[row.rk] = row
        assert list(rows.states.items()) == [(rk, row.props["state"]) for rk, row in rows.items()]
        assert rows.firing == {rk for rk, row in rows.items() if row.props["state"] == "firing"}
        assert rows.owing == {rk for rk, row in rows.items() if row.props["state"] in rules.FINAL and owes(row.props)}
        assert rules.user_ends(rows.user_ended) == rules.user_ends(rows)
