"""The protocol of a changing partition count, step by step on the twin: races, lost answers, servers that have not heard of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shared.engine.effects import Write
from shared.leases.generations import ResizeProgress
from shared.leases.protocol import membership, resizing, takeover
from shared.leases.protocol.membership import BeatApplied, BeatNotApplied, IncarnationFenced, Registered, ServerReport
from shared.leases.protocol.resizing import PartitionsOffline, ResizeBegun, ResizeUnderWay
from shared.leases.rows import FLEET, Fleet, Intent, parse_fleet, server_key
from shared.leases.rules import ServerSession
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Delete, Insert, Merge

from ..conftest import KEY, Bench, T


def join(bench: Bench, name: str, generation: int = 1) -> ServerSession:
    session = ServerSession(KEY, name, f"{name}1", generation=generation)
    assert bench.drive(membership.register(session, ServerReport(), None, (), T)) == Registered()
    return session


def claim(bench: Bench, session: ServerSession, *partitions: int) -> list[int]:
    claims = bench.drive(takeover.scout(session, partitions))
    done = bench.drive(membership.beat(session, ServerReport(), "live", claims))
    return [claim.partition for claim in done.claimed] if isinstance(done, BeatApplied) else []


def release(bench: Bench, session: ServerSession, *partitions: int) -> object:
    session.leaving |= {number: session.held.pop(number) for number in partitions}
    return bench.drive(membership.beat(session, ServerReport(), "live", (), partitions))


def begin(bench: Bench, partitions: int, now: int = 0) -> object:
    return bench.drive(resizing.begin(KEY, partitions, now))


def sweep(bench: Bench) -> ResizeProgress | None:
    return bench.drive(resizing.sweep(KEY))


def fleet(bench: Bench) -> Fleet:
    row = bench.tables.get(FLEETS, KEY, FLEET, timeout=1)
    assert row is not None
    return parse_fleet(row.props)


def shown(bench: Bench, numbers: Sequence[int]) -> list[tuple[int, bool, str, int]]:
    rows = [bench.partition(number) for number in numbers]
    return [(row.generation, row.closed, row.owner, row.epoch) for row in rows]


def test_a_change_without_servers_is_done_by_one_sweep(bench: Bench) -> None:
    begun = begin(bench, 3)
    assert begun == ResizeBegun(Fleet(3, generation=2, changes=1, former=2))
    assert sweep(bench) == ResizeProgress(2, 2, 3, 2, 3)
    assert fleet(bench) == Fleet(3, generation=2, changes=2)
    assert shown(bench, range(3)) == [(2, False, "", 0)] * 3
    assert sweep(bench) is None


def test_new_rows_are_there_before_the_fleet_names_them_and_nobody_claims_them_yet(bench: Bench) -> None:
    bench.tables.faults.extend(["", "away"])
    with pytest.raises(Exception, match="not reached"):
        begin(bench, 4)
    assert fleet(bench) == Fleet(2)
    assert shown(bench, (2, 3)) == [(2, True, "", 0)] * 2
    a = join(bench, "a")
    assert claim(bench, a, 0, 1, 2, 3) == [0, 1]
    # Another number next time: the rows that are left over do no harm.
    assert isinstance(begin(bench, 3), ResizeBegun)
    release(bench, a, 0, 1)
    progress = sweep(bench)
    assert progress is not None and progress.done
    assert shown(bench, range(4)) == [(2, False, "", 1)] * 3 + [(2, True, "", 0)]


def test_a_partition_that_is_served_holds_up_those_it_shares_keys_with_and_only_those(bench: Bench) -> None:
    a, b = join(bench, "a"), join(bench, "b")
    assert (claim(bench, a, 0), claim(bench, b, 1)) == ([0], [1])
    begin(bench, 4)
    release(bench, b, 1)
    assert sweep(bench) == ResizeProgress(2, 2, 4, 1, 2)
    assert shown(bench, range(4)) == [(1, False, "a", 1), (2, False, "", 1), (2, True, "", 0), (2, False, "", 1)]
    b.generation = 2
    assert claim(bench, b, 0, 1, 2, 3) == [1, 3]
    assert b.held[3].epoch == 2
    a.generation = 2
    assert release(bench, a, 0) == BeatApplied((), (0,))
    assert shown(bench, [0]) == [(2, True, "", 1)]
    progress = sweep(bench)
    assert progress is not None and progress.done
    assert claim(bench, a, 0, 1, 2, 3) == [0, 2]


def test_with_coprime_counts_nothing_opens_before_all_is_closed(bench: Bench) -> None:
    a = join(bench, "a")
    claim(bench, a, 1)
    begin(bench, 3)
    assert sweep(bench) == ResizeProgress(2, 2, 3, 1, 0)
    release(bench, a, 1)
    assert sweep(bench) == ResizeProgress(2, 2, 3, 2, 3)
    assert shown(bench, range(3)) == [(2, False, "", 1)] * 3


def test_a_server_that_has_not_heard_of_it_claims_what_is_not_closed_and_nothing_after(bench: Bench) -> None:
    a = join(bench, "a")
    begin(bench, 1)
    assert claim(bench, a, 0, 1) == [0, 1]
    release(bench, a, 0, 1)
    found = bench.drive(takeover.scout(a, [0, 1]))
    sweep(bench)
    assert claim(bench, a, 0, 1) == []
    assert bench.drive(membership.beat(a, ServerReport(), "live", found[:1])) == BeatNotApplied(refused=(0,))
    assert shown(bench, range(2)) == [(2, False, "", 1), (2, True, "", 1)]


def test_what_a_fenced_server_had_is_closed_without_it(bench: Bench) -> None:
    a = join(bench, "a")
    claim(bench, a, 0, 1)
    begin(bench, 1)
    assert sweep(bench) == ResizeProgress(2, 2, 1, 0, 0)
    run_through(bench.memory.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)]))
    assert sweep(bench) == ResizeProgress(2, 2, 1, 2, 1)
    assert bench.drive(membership.beat(a, ServerReport(), "live")) == IncarnationFenced()


def test_rows_beyond_a_smaller_count_stay_and_count_on_when_they_come_back(bench: Bench) -> None:
    a = join(bench, "a")
    claim(bench, a, 1)
    for number in range(3):
        release(bench, a, 1)
        claim(bench, a, 1)
        assert a.held[1].epoch == number + 2
    begin(bench, 1)
    a.generation = 2
    release(bench, a, 1)
    sweep(bench)
    assert claim(bench, a, 0, 1) == [0]
    assert a.held[0].epoch == 5
    begin(bench, 2)
    a.generation = 3
    release(bench, a, 0)
    sweep(bench)
    assert claim(bench, a, 0, 1) == [0, 1]
    assert (a.held[0].epoch, a.held[1].epoch) == (6, 6)


def test_the_same_count_again_changes_nothing_and_another_one_waits(bench: Bench) -> None:
    a = join(bench, "a")
    claim(bench, a, 0)
    assert begin(bench, 2) == ResizeBegun(Fleet(2), again=True)
    begin(bench, 4)
    now = Fleet(4, generation=2, changes=1, former=2)
    assert begin(bench, 4) == ResizeBegun(now, again=True)
    assert begin(bench, 2) == ResizeUnderWay(now)
    assert fleet(bench) == now


def test_a_missing_fleet_is_reported(bench: Bench) -> None:
    assert bench.drive(resizing.begin("default:other", 3, 0)) == "missing"
    assert bench.drive(resizing.sweep("default:other")) is None


def test_partitions_that_are_offline_would_be_served_again(bench: Bench) -> None:
    intent = Intent("offline", 1, expires=1000)
    run_through(bench.memory.write(FLEETS, KEY, [Insert(intent.key, intent.props())]))
    assert begin(bench, 3, now=999) == PartitionsOffline((1,))
    assert fleet(bench) == Fleet(2)
    assert isinstance(begin(bench, 3, now=1000), ResizeBegun)


@pytest.mark.parametrize("fault", ["lost", "gone"])
@pytest.mark.parametrize("write", range(4))
def test_a_lost_answer_anywhere_is_made_up_for(bench: Bench, fault: str, write: int) -> None:
    bench.tables.faults.extend(["", "", "", "", ""])
    bench.tables.faults[write] = fault
    assert isinstance(begin(bench, 3), ResizeBegun)
    for _ in range(4):
        sweep(bench)
    assert fleet(bench).former == 0
    assert shown(bench, range(3)) == [(2, False, "", 0)] * 3


def test_a_fleet_that_others_keep_changing_is_given_up(bench: Bench) -> None:
    bench.tables.faults.extend(["", *["gone"] * 20])
    assert begin(bench, 3) == "contended"


def test_a_claim_that_comes_between_look_and_close_keeps_its_partition(bench: Bench) -> None:
    a = join(bench, "a")
    begin(bench, 1)
    steps = resizing.sweep(KEY)
    effect = next(steps)
    while not isinstance(effect, Write):
        effect = steps.send(bench.runner.perform(effect))
    assert claim(bench, a, 0) == [0]
    with pytest.raises(StopIteration):
        steps.send(bench.runner.perform(effect))
    assert shown(bench, [0]) == [(1, False, "a", 1)]


def test_two_that_carry_it_on_at_once_do_no_harm(bench: Bench) -> None:
    begin(bench, 3)
    first, second = resizing.sweep(KEY), resizing.sweep(KEY)
    answers: list[object] = [None, None]
    ended = [False, False]
    while not all(ended):
        for at, steps in enumerate((first, second)):
            if not ended[at]:
                try:
                    answers[at] = bench.runner.perform(steps.send(answers[at]))
                except StopIteration:
                    ended[at] = True
    assert shown(bench, range(3)) == [(2, False, "", 0)] * 3
    assert fleet(bench) == Fleet(3, generation=2, changes=2)


def test_a_removed_row_holds_up_the_partitions_that_share_its_keys_until_it_is_back(bench: Bench) -> None:
    run_through(bench.memory.write(FLEETS, KEY, [Delete("p:00001", ANY)]))
    begin(bench, 4)
    assert sweep(bench) == ResizeProgress(2, 2, 4, 1, 2)
    assert bench.drive(takeover.insert_missing_rows(KEY, fleet(bench), 77)) == 1
    progress = sweep(bench)
    assert progress is not None and progress.done
    assert shown(bench, range(4)) == [(2, False, "", 0), (2, False, "", 77), (2, False, "", 0), (2, False, "", 77)]


def test_many_partitions_are_changed_in_transactions_of_a_hundred() -> None:
    bench = Bench(partitions=150)
    begin(bench, 420)
    before = bench.tables.writes
    progress = sweep(bench)
    assert progress is not None and progress.done
    assert bench.tables.writes - before == 2 + 5 + 1


def test_an_order_shows_the_generation_and_is_given_once(bench: Bench) -> None:
    a = join(bench, "a")
    assert bench.drive(takeover.write_order(KEY, "a", [], [], 2))
    assert bench.drive(membership.beat(a, ServerReport(), "live")) == BeatNotApplied(told=True)
    assert (a.heard, a.generation) == (2, 1)
    writes = bench.tables.writes
    assert bench.drive(takeover.write_order(KEY, "a", [], [], 1))
    assert bench.drive(takeover.write_order(KEY, "a", [], [], 2))
    assert bench.tables.writes == writes
    assert bench.server("a").generation == 2
