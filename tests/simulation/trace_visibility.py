"""The planted bugs that a trace shows, with the sentence that names each, and the reason why it cannot show the others.

A trace has the rows of gates, events' states, leases and turns. It has no deliveries, no beliefs of a process, no rows of lists, and it
shows what was done, not what was left undone.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class VisibleBug(NamedTuple):
    """A bug that the traces of simulated histories show. seed: seed of the first such history. rule: a part of the sentence about it."""

    seed: int
    rule: str


UNDONE: Final = "Something is left undone. A trace shows what was done."
BELIEF: Final = "A process acts on what it believes. The rows are those of a correct run."
DELIVERY: Final = "A delivery is no row: it begins too early, or without its claim, and the rows change in order."
LISTS: Final = "Rows of lists, the index, the ledger, ids and the ingest queue are not traced."
COPIES: Final = "Each shard's rows are legal. The event is alive in two shards, whose traces do not name it."
CALLBACKS: Final = "The trace does not keep the property with the callbacks that are still owed."
PROOF: Final = "The proof that a process has ended is a lock on a file of its machine, which storage does not show."
TOKENS: Final = "Tokens are in the application's own tables, which are not traced."
WORK: Final = "The trace does not keep the tokens and deadlines of long work."
CUT: Final = "The simulated history ends at the broken promise, before the step. Real processes go on: test_real_traces.py."
CLOCK: Final = "Ages by storage's times are exact to 2 s, and the T of these short profiles is 4 s."
CONSTANT: Final = "The patch also changes the constant that the judge reads, as it runs in the same process here."

SIMULATED: Final[dict[str, dict[str, VisibleBug | str]]] = {
    "shards": {
        "claims are not written": CUT,
        "nothing is sealed": COPIES,
        "a lost answer means stored": COPIES,
        "a lost answer means refused": COPIES,
        "retries are forgotten at the finish": VisibleBug(0, "open events"),
        "what is being delivered may be cancelled": VisibleBug(1, "without the gate"),
        "shards are not filed": LISTS,
        "the gate is written unconditionally": VisibleBug(0, "whatever its ETag"),
        "claims are unconditional": VisibleBug(19, "leaves the final state"),
        "a move points before it copies": COPIES,
        "an id is taken over unseen": LISTS,
        "a rest is refiled in two steps": LISTS,
        "the index row goes before the ledger": LISTS,
        "deliveries do not wait": DELIVERY,
        "pauses are not looked at": DELIVERY,
        "owners start without a beat": DELIVERY,
        "dead owners keep their shards": UNDONE,
        "counts are added up": VisibleBug(1, "open events"),
        "a cancel does not take the id of a queued event": LISTS,
        "shards are finished while callbacks are owed": CALLBACKS,
        "callbacks are noted before they are stored": CALLBACKS,
        "events of the ingest queue do not come again": LISTS,
    },
    "leases": {
        "claim without fencing first": VisibleBug(33, "which has not ended"),
        "validity from the answer instead of the send": BELIEF,
        "age from the request instead of the receipt": BELIEF,
        "resume without proof": PROOF,
        "a beat without its ETag": VisibleBug(0, "whatever its ETag"),
        "a beat that takes its row back": VisibleBug(0, "whatever its ETag"),
        "a lost claim taken for granted": BELIEF,
        "V above T": BELIEF,
        "T too short": CLOCK,
        "owns without a deadline": BELIEF,
        "serves while it hands off": BELIEF,
        "refusals prolong validity": BELIEF,
        "claims without the partition's ETag": VisibleBug(0, "whatever its ETag"),
        "the epoch is not raised": CUT,
        "writes without their token": TOKENS,
        "tokens are never taken away": TOKENS,
        "orders keep the dead alive": UNDONE,
        "lost claims are read back once": UNDONE,
        "plans are not looked after": UNDONE,
        "an own row that went backwards is taken as it is": VisibleBug(0, "storage has lost a write"),
    },
    "turns": {
        "the next grant right after a revoke": VisibleBug(0, "may work on"),
        "a turn freed by a new process of its holder": VisibleBug(0, "may work on"),
        "latest replaced by an older one": VisibleBug(0, "goes back"),
        "the limit is forgotten": BELIEF,
        "who is passed over is forgotten": "It is unfair, and each grant is legal.",
        "always the first": "It is unfair, and each grant is legal.",
        "turns have no end": UNDONE,
    },
}

SHARD_PROPERTIES: Final = {
    "P1": UNDONE,
    "P2": DELIVERY,
    "o1 starts x early": DELIVERY,
    "P4": COPIES,
    "P6": PROOF,
    "P7": LISTS,
    "P8": CALLBACKS,
    "P9": LISTS,
    "P10": LISTS,
    "P11": "Totals are read, and no row of a gate or an event is wrong.",
    "W2": WORK,
    "W3": WORK,
}
"""Properties of the model of shards that a trace does not show. It shows the others: T, P3 and P5."""
SHARDS_DONE: Final = {"done with an event retrying"}
"""Mutants that break P1 by a gate that is done too early, which a trace shows."""

LEASES: Final = {
    "validity from the answer instead of the send": BELIEF,
    "age from the request instead of the receipt": BELIEF,
    "ownership without incarnation": BELIEF,
    "V above T": BELIEF,
    "resume without proof": PROOF,
    "a lost claim taken for granted": BELIEF,
    "validity from the last send though an earlier write was stored": BELIEF,
    "partitions kept before the server has stopped": BELIEF,
    "an own row that went backwards is taken as it is": "The model's store loses the writes; the simulator's trace shows it.",
    "claims right after a rollback": BELIEF,
    "the loss of a registration is not noticed": BELIEF,
    "opened before all that share keys are closed": "A partition's row alone is legal; keys that partitions share are not in the trace.",
    "claimed by a server of the former generation": BELIEF,
    "epochs that start over": "The rows of a new generation begin without the former ones.",
    "released as open": "A partition's row alone is legal; keys that partitions share are not in the trace.",
    "a beat without its ETag": "Of a server over HTTP, the beat changes no other property; the trace names the missing ETag.",
    "a fenced row renewed": BELIEF,
    "validity from the last try": BELIEF,
    "registration without silence": BELIEF,
    "what is being released taken back": BELIEF,
    "evicted and taken at once": BELIEF,
    "kept before the server has stopped": BELIEF,
    "kept by a former incarnation": BELIEF,
    "a live row replaced like a kept one": BELIEF,
}
"""Mutants of the models of leases, resizes and servers over HTTP whose shortest way breaks no rule of a row's change."""

TURNS: Final = {
    "no margin for the steps of Date": CONSTANT,
    "a clock that stands still while its machine sleeps": BELIEF,
    "a turn handed out to a new process of its holder": BELIEF,
    "a report of a former process taken for one of the new": "Which process sent a report shows in its row, in real traces alone.",
    "the turn's row written without its ETag": "The model writes it so; the trace names the missing ETag.",
    "the limit counted from the receipt": BELIEF,
    "an answer to an older report acted upon": BELIEF,
    "a turn begun twice": BELIEF,
    "the role not looked at when the answer comes": BELIEF,
}
"""Mutants of the model of turns whose shortest way breaks no rule of a row's change."""
