"""Latencies of a fleet's caller probe, as histograms of fixed buckets that can be added. Pure; used by agents and by the app.

A bucket is a fourth of an octave (19 %) wide, so a percentile is at most 19 % too high and never too low. The bound on p99 is judged
exactly, because answers that are slower than it are counted. A failure has no latency: it counts by itself, and no percentile has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

type ProbePhase = Literal["before", "out", "one_node", "some_nodes", "domain"]
"""The state of the nodes of a quorum unit while a probe runs.

before: all serve. out: a node is out of service. one_node, some_nodes, domain: none is out any more, and one node catches up, several do,
or all nodes of a fault domain that has several.
"""
PHASES: Final[tuple[ProbePhase, ...]] = get_args(ProbePhase.__value__)
READY: Final = "ready"
"""State of an agent that can run the fleet's caller probe."""
CATCHING_UP: Final[tuple[ProbePhase, ...]] = ("one_node", "some_nodes", "domain")

PHASE_TEXTS: Final[Mapping[ProbePhase, str]] = {
    "before": "before",
    "out": "while a node is out",
    "one_node": "while one node catches up",
    "some_nodes": "while some nodes catch up",
    "domain": "while a fault domain catches up",
}

FIRST: Final = 0.1
"""Upper end of the first bucket, in milliseconds."""
PER_OCTAVE: Final = 4
BUCKETS: Final = 78
"""Number of buckets. The last one begins at 52 s, and takes all that is slower."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Results of probes. buckets: number of answers by bucket. failures: probes without a good answer in time. slow: answers slower than
    the bound on p99."""

    buckets: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    slow: int = 0

    @property
    def answered(self) -> int:
        """Number of good answers."""
        return sum(self.buckets.values())

    @property
    def probes(self) -> int:
        """Number of probes."""
        return self.answered + self.failures


@dataclass(frozen=True, slots=True)
class LatencyBound:
    """The limits of what callers may notice. p99: milliseconds, None for no bound. failures: largest share of probes that may fail,
    None for no bound."""

    p99: int | None = None
    failures: float | None = None


def bucket_of(milliseconds: float) -> int:
    """Return the bucket of a latency."""
    if milliseconds <= FIRST:
        return 0
    # A latency at the upper end of a bucket belongs to it, whatever the logarithm's last digit is.
    return min(BUCKETS - 1, math.ceil(PER_OCTAVE * math.log2(milliseconds / FIRST) - 1e-9))


def upper_end(bucket: int) -> float:
    """Return the upper end of a bucket, in milliseconds."""
    return float(FIRST * 2 ** (bucket / PER_OCTAVE))


def with_answer(before: Latencies, milliseconds: float, slow_after: int | None) -> Latencies:
    """Return latencies with one more answer. slow_after: the bound on p99 in milliseconds."""
    bucket = str(bucket_of(milliseconds))
    slow = before.slow + (slow_after is not None and milliseconds > slow_after)
    return Latencies({**before.buckets, bucket: before.buckets.get(bucket, 0) + 1}, before.failures, slow)


def with_failure(before: Latencies) -> Latencies:
    """Return latencies with one more failed probe."""
    return Latencies(before.buckets, before.failures + 1, before.slow)


def merged(parts: Iterable[Latencies]) -> Latencies:
    """Return the sum of latencies."""
    buckets: dict[str, int] = {}
    failures = slow = 0
    for part in parts:
        for bucket, count in part.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        failures += part.failures
        slow += part.slow
    return Latencies(buckets, failures, slow)


def percentile(found: Latencies, share: float) -> float | None:
    """Return the upper end of the bucket with a percentile by nearest rank, in milliseconds; None without answers."""
    left = math.ceil(share * found.answered)
    if not found.answered:
        return None
    for bucket in sorted(map(int, found.buckets)):
        left -= found.buckets[str(bucket)]
        if left <= 0:
            break
    return upper_end(bucket)


def p99_of(found: Latencies, bound: LatencyBound | None) -> float | None:
    """Return p99 in milliseconds; None without answers. It is above the bound only if the bound is really passed."""
    p99 = percentile(found, 0.99)
    if p99 is None or bound is None or bound.p99 is None or _too_slow(found):
        return p99
    return min(p99, float(bound.p99))


def _too_slow(found: Latencies) -> bool:
    # The nearest rank of p99 is among the slow answers exactly if these are more than one in a hundred.
    return found.slow * 100 > found.answered


def passed_bounds(phases: Mapping[ProbePhase, Latencies], bound: LatencyBound | None) -> list[str]:
    """Return a sentence for each bound that is passed, by phase."""
    if bound is None:
        return []
    wrong: list[str] = []
    for phase in PHASES:
        found = phases.get(phase)
        if found is None or not found.probes:
            continue
        p99 = p99_of(found, bound)
        if bound.p99 is not None and p99 is not None and _too_slow(found):
            wrong.append(f"{PHASE_TEXTS[phase]}: p99 is {milliseconds_text(p99)}, and the bound {milliseconds_text(bound.p99)}")
        if bound.failures is not None and found.failures > bound.failures * found.probes:
            failed = f"{found.failures} of {found.probes} probes failed ({found.failures / found.probes:.1%})"
            wrong.append(f"{PHASE_TEXTS[phase]}: {failed}, and the bound is {bound.failures:.1%}")
    return wrong


def milliseconds_text(milliseconds: float) -> str:
    """Return milliseconds for people, with three significant digits at least."""
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.3g} ms"
