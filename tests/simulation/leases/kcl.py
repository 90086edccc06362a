"""The lease assignment of the Kinesis Client Library 3.x for Java (KCL 3), as it is documented, with its default settings.

A simulation of the rules, written for this comparison. Facts: "KCL 3.x deep dive" and "KCL configurations" in the documentation of
awslabs/amazon-kinesis-client, read in 2026.

- A leader assigns all leases. It runs every 2 x `failoverTimeMillis`, and balances in each third run (`varianceBalancingFrequency` 3).
- A worker reports its CPU utilisation every 30 s. Here that is its load; the leader smooths the reports (`workerMetricsEMAAlpha` 0.5).
- A lease's throughput is an average over `failoverTimeMillis` / 3, smoothed with alpha 0.5.
- If a worker is more than `reBalanceThresholdPercentage` 10 % from the mean, load is taken from those above the limit, else from the
  busiest: `dampeningPercentage` 60 % of what they have above the mean, as throughput. Leases are picked at random as long as they fit
  into that; if none fits, the smallest one is taken all the same (`allowThroughputOvershoot` true).
- Each goes to the worker with the most room below the mean, unless that would bring the worker above the mean.
- `maxLeasesForWorker` and the throughput per host are unlimited. Nothing bounds the moves of a run.

Hand-offs take no time here: the comparison is about decisions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Final

from .skews import Skew

FAILOVER: Final = 10.0
RUN_EVERY: Final = 2 * FAILOVER
BALANCE_EVERY: Final = 3
REPORT_EVERY: Final = 30.0
RENEW_EVERY: Final = FAILOVER / 3
THRESHOLD: Final = 0.10
DAMPENING: Final = 0.60
ALPHA: Final = 0.5
SAMPLES: Final = 5
"""Samples of a load in one report: a report is an average over its interval."""


class KclFleet:
    """Leases and workers under one skew. moves: changes of owners since the start."""

    def __init__(self, owners: Mapping[int, str], workers: list[str], skew: Skew, seed: object) -> None:
        self.owners, self.workers, self.skew = dict(owners), workers, skew
        self.moves = 0
        self._dice = random.Random(f"kcl {seed}")
        self._throughput: dict[int, float] = {}
        self._metrics: dict[str, float] = {}

    def run(self, seconds: float) -> Iterator[tuple[float, dict[str, float], int]]:
        """Run from the start. After each run of the leader yield the time, the workers' true loads and the moves so far."""
        renewed = reported = -1.0
        count = 0
        now = 0.0
        while now <= seconds:
            while renewed < now:
                renewed += RENEW_EVERY
                self._renew(renewed)
            while reported < now:
                reported += REPORT_EVERY
                self._report(reported)
            if count % BALANCE_EVERY == 0 and count > 0:
                self._balance()
            count += 1
            yield now, self.loads(now), self.moves
            now += RUN_EVERY

    def loads(self, now: float) -> dict[str, float]:
        """Return the true load of each worker."""
        found = dict.fromkeys(self.workers, 0.0)
        for number, worker in self.owners.items():
            found[worker] += self.skew.load(number, now)
        return found

    def _renew(self, now: float) -> None:
        for number in self.owners:
            measured = self.skew.measured(number, now, self._dice)
            self._throughput[number] = ALPHA * measured + (1 - ALPHA) * self._throughput.get(number, measured)

    def _report(self, now: float) -> None:
        fresh = dict.fromkeys(self.workers, 0.0)
        for number, worker in self.owners.items():
            fresh[worker] += sum(self.skew.measured(number, now, self._dice) for _ in range(SAMPLES)) / SAMPLES
        for worker, load in fresh.items():
            self._metrics[worker] = ALPHA * load + (1 - ALPHA) * self._metrics.get(worker, load)

    def _balance(self) -> None:
        mean = sum(self._metrics.values()) / len(self.workers)
        average = sum(self._throughput.values()) / len(self.workers)
        metrics = dict(self._metrics)
        high, low = mean * (1 + THRESHOLD), mean * (1 - THRESHOLD)
        if all(low <= metric <= high for metric in metrics.values()):
            return
        donors = [worker for worker in self.workers if metrics[worker] >= high] or [max(self.workers, key=metrics.__getitem__)]
        held: dict[str, list[int]] = {worker: [] for worker in self.workers}
        for number, worker in self.owners.items():
            held[worker].append(number)
        wanted = {
            worker: sum(self._throughput[number] for number in held[worker]) * DAMPENING * (metrics[worker] - mean) / metrics[worker]
            for worker in donors
        }
        open_ = set(self.workers)
        for worker in sorted(donors, key=lambda worker: -wanted[worker]):
            for number in self._picked(held[worker], wanted[worker]):
                if not open_:
                    return
                target = min(open_, key=lambda name: (metrics[name], name))
                added = self._throughput[number] * mean / average
                if metrics[target] + added > mean:
                    # The library does not consider this worker again in this run.
                    open_.discard(target)
                    break
                if target == worker:
                    continue
                metrics[target] += added
                self.owners[number] = target
                self.moves += 1

    def _picked(self, leases: list[int], wanted: float) -> list[int]:
        leases = list(leases)
        self._dice.shuffle(leases)
        found: list[int] = []
        for number in leases:
            if wanted - self._throughput[number] > 0:
                wanted -= self._throughput[number]
                found.append(number)
        return found or sorted(leases, key=lambda number: self._throughput[number])[:1]
