"""Every mutant of the shard protocol must be caught, or the checker proves nothing."""

from __future__ import annotations

import pytest

from tests.model.checking.mutants import Mutant
from tests.model.proving import assert_caught
from tests.model.shards.mutants import MUTANTS, hunt

EXPECTED = {
    "a proof that counts for any owner": ("P6", 16),
    "a process that counts for any holder": ("P6", 16),
    "a batch not tied to the gate": ("T", 6),
    "claim skipped": ("T", 9),
    "a retry unclaimed": ("T", 12),
    "a lost answer retried without fencing": ("P4", 6),
    "read back without a fence": ("P4", 7),
    "a settlement re-sent without a fence": ("P5", 10),
    "done with an event retrying": ("P1", 11),
    "an unconditional fence": ("T", 7),
    "a gate adopted while rows are written unconditionally": ("T", 9),
    "a timed-out claim taken as done": ("T", 9),
    "a new owner skipping firing rows": ("P1", 8),
    "index row deleted before the ledger": ("P1", 9),
    "cancel after a claim of a former epoch": ("P2", 18),
    "id row without sealing": ("P4", 9),
    "a withdrawal without sealing": ("P2", 2),
    "delete-then-insert move": ("T", 0),
    "a joining event moved elsewhere without sealing": ("P4", 12),
    "a pointer into a shared shard before the copy": ("P1", 6),
    "cancel of a moving row in place": ("P2", 16),
    "a larger event at the due time read before": ("o1 starts x early", 22),
    "redrive that turns the dead row first": ("P1", 3),
    "a redrive that places before it has marked": ("P4", 6),
    "a mark of a redrive that replaces another": ("P4", 8),
    "a redrive left half-way by the copies' owner": ("P1", 6),
    "redriven events not noted in the ledger": ("P1", 0),
    "an id taken over without ETag": ("P4", 16),
    "a sent mark without ETag": ("P1", 11),
    "wrong counts while resting": ("P3", 11),
    "counts added to a former owner's": ("P3", 13),
    "express events stored before their index row": ("P1", 2),
    "an express event with an id row sent again": ("P4", 15),
    "a lost first transaction of an express shard taken as stored": ("P1", 2),
    "an event added to an express shard without its gate": ("P5", 4),
    "a state row after its event": ("P7", 7),
    "a state row of an unfinished shard removed": ("P7", 11),
    "a state row of a shard without a gate removed": ("P7", 8),
    "a completion without the ETag": ("W3", 13),
    "a token that counts for any attempt": ("W3", 17),
    "a completion before the answer is stored": ("P5", 9),
    "a silence in spite of a heartbeat": ("W2", 18),
    "a retry while the receiver works": ("W2", 16),
    "a refused event without its state row": ("P7", 12),
    "a callback noted after the settlement": ("P1", 8),
    "the note of a callback removed before the callback is stored": ("P1", 9),
    "a shard finished while a callback is owed": ("P1", 0),
    "an express shard done while a callback is owed": ("P1", 0),
    "a callback under an id of its owner": ("P8", 18),
    "a callback stored before the event's end": ("P8", 9),
    "a label row after its event": ("P9", 2),
    "a label row of an unfinished shard removed": ("P9", 6),
    "a moved event's label row before its copy": ("P9", 15),
    "a held row after the gate": ("P10", 9),
    "events in a held row that are held no more": ("P10", 20),
    "a held row written at will": ("P10", 22),
    "a held row that the gate does not name": ("P10", 20),
    "counted ends that the gate does not name": ("P11", 8),
    "ends named by the gate before they are counted": ("P11", 12),
    "an end noted before it is made": ("P11", 3),
    "a note written at will": ("P11", 10),
    "a cancelled retry that stays a retry": ("P11", 4),
    "a moved event noted at its new place": ("P11", 9),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_hole_is_found(mutant: Mutant) -> None:
    report = hunt(mutant)
    violation = assert_caught(report)
    assert (violation.partition(":")[0], report.steps) == EXPECTED[mutant.name], str(report)
