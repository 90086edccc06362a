"""Verification of trace lines: how they are read, in which order they are replayed, and what is illegal, a gap, or neither."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Collection
from typing import Any

import pytest

from shared.checkpoints.rows import ReplicaRow, TurnRow
from shared.extras.verification import leases, turns
from shared.extras.verification.lines import TraceLine, TraceReading, parse_line, read_lines
from shared.extras.verification.spool import LineNumbers, TraceSpool
from shared.extras.verification.verify import TraceVerdict, verify, verify_spool
from shared.extras.verification.watch import KEPT, KEPT_OPS, MOST_PARTITIONS, TraceWatch
from shared.fleets.definition import fleet_of
from shared.fleets.model import FleetIn
from shared.leases.rows import Partition, Server
from shared.storage.transition_trace import MARK, SeenRow, traced_props
from tests.texts import assert_text

SHARD = "12-0a-t"
GATE = {"state": "owned", "holder": "w", "epoch": 1, "bytes": 0, "index": "i", "bucket": "", "accepted": 1}
COUNTS = dict.fromkeys(("delivered", "dead", "lapsed", "cancelled", "moved", "retrying"), 0)


def gate(**changes: Any) -> dict[str, Any]:
    return {**GATE, **COUNTS, **changes}


def line(number: int, *ops: list[Any], by: str = "a", **more: Any) -> str:
    """A line of one process: operations are verb, row key, properties, ETag required, ETag given."""
    return json.dumps({"v": 1, "by": by, "n": number, "at": 1000 + number, "k": "gate", "p": SHARD, "o": ops, **more})


MADE = line(1, ["i", "gate", gate(state="open", epoch=0), "", "1"], ["i", "e000", {"state": "scheduled"}, "", "1"])
TAKEN = line(2, ["m", "gate", gate(holder="o"), "1", "2"], ["m", "e000", {"state": "firing", "epoch": 1}, "1", "2"])
ENDED = line(3, ["m", "gate", gate(holder="o", delivered=1), "2", "3"], ["m", "e000", {"state": "delivered"}, "2", "3"])


def judged(*texts: str) -> TraceVerdict:
    return verify([parse_line(text) for text in texts])


def read(text: bytes) -> TraceReading:
    reading = TraceReading()
    list(read_lines(reading, io.BytesIO(text)))
    return reading


def test_a_shard_that_follows_the_protocol_is_legal_in_whatever_order_its_lines_come() -> None:
    for texts in ([MADE, TAKEN, ENDED], [ENDED, TAKEN, MADE], [TAKEN, MADE, ENDED, MADE]):
        verdict = judged(*texts)
        assert (verdict.illegal, verdict.gaps, verdict.missing, verdict.steps["gate"]) == ([], 0, 0, 3)


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (["m", "e000", {"state": "delivered"}, "1", "2"], "without a claim"),
        (["m", "gate", gate(epoch=2), "1", "2"], "each take adds 1"),
        (["m", "gate", gate(holder="o"), "*", "2"], "whatever its ETag"),
        (["m", "e000", {"state": "firing", "epoch": 7}, "1", "2"], "not written with it"),
        (["d", "e000", {}, "1", ""], "removed while it is scheduled"),
    ],
)
def test_an_illegal_step_is_named_with_its_neighbour(step: list[Any], rule: str) -> None:
    [found] = judged(MADE, line(2, step)).illegal
    assert rule in found.rules[0] and found.before[0].startswith("a line 1: insert gate") and found.partition == SHARD


def test_two_processes_that_replace_one_version_are_found_in_the_lines_of_both_alone() -> None:
    other = line(1, ["m", "gate", gate(holder="p"), "1", "3"], by="b")
    assert "replaced twice" in judged(MADE, TAKEN, other).illegal[0].rules[0]
    assert not judged(MADE, TAKEN).illegal and not judged(MADE, other).illegal


def test_a_step_that_the_trace_lacks_is_a_gap_and_no_violation() -> None:
    verdict = judged(MADE, ENDED)
    assert (verdict.illegal, verdict.gaps, verdict.missing) == ([], 1 + 1, 1)


def test_a_transaction_with_a_lost_answer_counts_as_applied_only_if_a_reading_shows_it() -> None:
    ops = [["m", "gate", gate(holder="o"), "1", ""], ["m", "e000", {"state": "firing", "epoch": 1}, "1", ""]]
    lost = line(2, *ops, a="lost")
    fenced = line(3, ["m", "gate", gate(holder="o"), "2", "3"], b={"gate": [gate(holder="o"), "2", 5]})
    found = judged(MADE, lost, fenced)
    assert (found.illegal, found.inferred, found.gaps) == ([], 1, 0)
    # Without the reading, a line that is missing could explain it as well.
    unread = judged(MADE, lost, line(3, ["m", "gate", gate(state="resting", holder="p"), "2", "3"]))
    assert (unread.illegal, unread.inferred, unread.gaps) == ([], 0, 1)


def server(**changes: Any) -> dict[str, Any]:
    row = {"state": "live", "incarnation": "i1", "beat": 1, "take": "", "drop": "", "scans": True, "tell": "", "generation": 1}
    return {**row, "kept": False, "held": "", "terms": "", "spread": "", "release_by": 0, "evicted": False, "refused": 0, **changes}


def test_silence_is_counted_from_the_last_heartbeat_and_not_from_an_operators_order() -> None:
    fleet = {"partitions": 1, "beat": 1.0, "validity": 3.0, "takeover": 9.0, "claims": 2, "moves": 32, "drain": 1.5, "minimum": 1}
    fleet |= {"generation": 1, "changes": 1, "spare": 0, "rest": "{}", "former": 0, "closed": False}

    def step(number: int, by: str, props: dict[str, Any], required: str, given: str, age: int | None = None) -> str:
        before = {"b": {"s:c": [server(tell="exit" if required == "2" else ""), required, age], "fleet": [fleet, "1", 0]}} if age else {}
        op = ["m" if required else "i", "s:c", props, required, given]
        return line(number, op, by=by, k="lease", p="t:f", **before)

    joined, order = step(1, "c", server(), "", "1"), step(1, "b", {"tell": "exit"}, "1", "2")
    ordered = [joined, order, step(2, "b", {"state": "dead"}, "2", "3", age=600)]
    assert not judged(*ordered).illegal
    [found] = judged(joined, step(1, "b", {"state": "dead"}, "1", "2", age=600)).illegal
    assert_text("verification.fenced-too-early", found.rules[0], server="c", after=600, seconds=9)


# -- reading


@pytest.mark.parametrize("form", ["logged", "bare", "json lines", "one json document", "csv"])
def test_lines_are_read_out_of_logs_and_exports(form: str) -> None:
    texts = [MADE, TAKEN, ENDED]
    messages = [f"{MARK}{text}" for text in texts]
    if form == "logged":
        data = "\n".join(["starting", *(f"14:29:04 I shared.storage: {message} [thread 1]" for message in messages)])
    elif form == "bare":
        data = "\n".join(json.dumps(json.loads(text), separators=(",", ":")) for text in texts)
    elif form == "json lines":
        data = "\n".join(json.dumps({"body": {"stringValue": message}, "level": "INFO"}) for message in messages)
    elif form == "one json document":
        data = json.dumps({"tables": [{"rows": [["2026", message] for message in messages]}]}, indent=1)
    else:
        written = io.StringIO()
        csv.writer(written).writerows([["TimeGenerated", "Message"], *(["2026", message] for message in messages)])
        data = written.getvalue()
    found = read(data.encode())
    assert found.found == [parse_line(text) for text in texts] and not found.unreadable + found.newer + found.truncated


def test_damaged_cut_and_later_lines_are_counted_and_the_others_read() -> None:
    later, broken = MADE.replace('"v": 1', '"v": 2'), MADE.replace('"gate"', "gate", 1)
    hostile = [MADE.replace('"at": 1001', f'"at": {at}') for at in ("1e400", "-1", str(10**30), "[]")]
    found = read("\n".join(f"{MARK}{text}" for text in (later, broken, *hostile, TAKEN, ENDED[:80])).encode())
    assert (len(found.found), found.newer, found.unreadable, found.truncated) == (1, 1, 1 + len(hostile), 1)


def test_a_trace_larger_than_memory_is_verified_part_by_part() -> None:
    calls: list[tuple[int, int]] = []
    with TraceSpool() as spool:
        for number in range(200):
            for text in (MADE, TAKEN, ENDED):
                document = json.loads(text.replace(SHARD, f"12-0a{number}-t")) | {"by": f"p{number}"}
                spool.add(parse_line(json.dumps(document)), json.dumps(document).encode())
        verdict = verify_spool(spool, lambda done, of: calls.append((done, of)))
    assert (verdict.partitions["gate"], verdict.steps["gate"], verdict.illegal, verdict.missing) == (200, 600, [], 0)
    assert len(calls) == calls[0][1]


def test_missing_lines_are_counted_between_the_first_and_the_last_of_each_process() -> None:
    numbers = LineNumbers()
    for by, found in (("a", (5, 6, 9, 9)), ("b", (1020, 3000)), ("c", (7,))):
        for number in found:
            numbers.add(by, number)
    assert (numbers.missing, numbers.processes) == (2 + 1979, 3)


# -- the watch of a process


def watch(*lines: str, seconds: float = 0.0) -> TraceWatch:
    """A watch that has taken lines, with so many seconds between two."""
    watching = TraceWatch(itertools.count(0.0, seconds).__next__)
    for text in lines:
        watching.take(f"{MARK}{text}")
    return watching


def test_an_illegal_step_raises_one_alarm_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    bad = line(2, ["m", "gate", gate(holder="o"), "*", "2"])
    watching = watch(MADE, bad, seconds=60)
    watching.flush()
    watching.flush()
    [alarm] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert alarm.action == "protocol_violation" and "whatever its ETag" in alarm.getMessage()  # type: ignore[attr-defined]
    assert (watching.counters["trace_illegal"], watching.counters["trace_verified"]) == (1, 2)


def test_a_partition_is_verified_half_a_minute_after_its_first_new_line_when_anything_is_traced() -> None:
    watching = watch(MADE, line(2, ["m", "gate", gate(holder="o"), "*", "2"]), seconds=20)
    assert watching.counters["trace_illegal"] == 0
    watching.take(f"{MARK}{line(3, ['i', 'gate', gate(state='open', epoch=0), '', '1'], p='13-0b-t')}")
    assert watching.counters["trace_illegal"] == 1


def test_what_a_process_keeps_is_bounded_and_a_bad_line_does_no_harm() -> None:
    names = [f"{number:04d}-x" for number in range(MOST_PARTITIONS * 2)]
    watching = watch(*(line(1, ["i", "gate", gate(state="open", epoch=0), "", "1"], p=name) for name in names))
    assert len(watching._lines) <= MOST_PARTITIONS and watching.counters["trace_verified"] >= MOST_PARTITIONS
    for number in range(3 * KEPT):
        op = ["m", "gate", gate(holder="o", bytes=number), str(number + 1), str(number + 2)]
        watching.take(MARK + line(number + 2, op, p="long"))
    watching.take("tocsin-trace {")
    assert len(watching._lines["gate", "long"].lines) == KEPT and watching.counters["trace_illegal"] == 0


def test_large_transactions_of_many_partitions_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.extras.verification.watch.MOST_OPS", 1000)
    events = [["i", f"e{number:03}", {"state": "scheduled"}, "", "1"] for number in range(99)]
    made = [["i", "gate", gate(state="open", epoch=0), "", "1"], *events]
    watching = watch(*(line(1, *made, p=f"{number:04d}-x") for number in range(40)))
    assert [len(kept.lines) for kept in watching._lines.values()] == [1] * 10
    assert watching.counters["trace_verified"] == 30
    for number in range(2 * KEPT):
        op = ["m", "gate", gate(holder="o", bytes=number), str(number + 1), str(number + 2)]
        watching.take(MARK + line(number + 2, op, p="long"))
    assert watching._ops == sum(len(line.ops) for kept in watching._lines.values() for line in kept.lines) <= 1000


def test_a_shard_with_large_transactions_is_verified_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[list[int]] = []
    whole = verify

    def verified(lines: Collection[TraceLine]) -> TraceVerdict:
        found.append([each.number for each in lines])
        return whole(lines)

    monkeypatch.setattr("shared.extras.verification.watch.verify", verified)
    changes = [
        [["m", f"e{number:03}", {"state": "firing", "epoch": 1}, str(each), f"{each}+"] for number in range(99)] for each in range(100)
    ]
    takes = [["m", "gate", gate(), str(each), str(each + 1)] for each in range(100)]
    watching = watch(*(line(each + 1, takes[each], *changes[each]) for each in range(100)))
    assert max(map(len, found)) * 100 <= KEPT_OPS and watching._ops <= KEPT_OPS
    assert {number for each in found for number in each} == set(range(1, 101)), "no line is forgotten before it was verified"


def test_each_row_that_a_trace_keeps_can_be_read_by_the_verifier() -> None:
    """A property that a trace leaves out must have a value here: a row that cannot be read is not judged."""
    server = Server("s", "live", "i1", 1, expect=(("t", (1, 2)),), avoid=(3,), holds="5", domain="rack", capacity=4, load=0.5).props()
    replica = ReplicaRow("a", 1, 2, "primary", 1, 0, 0, 0, load=0.5)
    assert leases._server("s:s", traced_props("lease", "s:s", server)) is not None
    assert leases._partition("p:00007", traced_props("lease", "p:00007", Partition(7, "s", "i1", 3).props())) is not None
    assert leases._fleet(SeenRow(traced_props("lease", "fleet", fleet_of(FleetIn(partitions=4), 0).props()), "1", 0)) is not None
    assert turns._replica("replica:a", traced_props("turn", "replica:a", replica.props())) is not None
    assert turns._turn(traced_props("turn", "turn", TurnRow().props())) is not None
