"""The parts of a run, with the operations and the time that each is expected to need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from devhost.conformance import load, service, suite
from devhost.conformance.access import StorageAccess
from devhost.conformance.report import Report
from shared.storage.azure.account import Service

type Operations = Mapping[Service, float]


@dataclass(frozen=True)
class Options:
    """The options of the command that concern the parts."""

    only: tuple[str, ...]
    """Names of the parts to run."""
    minutes: float
    """Length of the load."""
    select: str = ""
    """An expression for pytest's `-k`, which chooses tests of the suite."""

    @property
    def batches(self) -> int:
        """Batches of the burst that may be throttled: 400 in a run of full length."""
        return max(10, min(400, round(40 * self.minutes)))


@dataclass(frozen=True)
class Part:
    """A part of the run. `expect` returns operations by service, with the removal at the end; `minutes` the time that it takes."""

    title: str
    run: Callable[[StorageAccess, Report, Options], Awaitable[None]]
    expect: Callable[[Options], Operations]
    minutes: Callable[[Options], float]


async def _suite(access: StorageAccess, report: Report, options: Options) -> None:
    # One pytest for both, because its start takes as long as many tests.
    both = "gate" in options.only
    select = f"({options.select}) or test_gate" if both and options.select else options.select
    await suite.run(access, report, "suite", [suite.TESTS, *(() if both else (f"--ignore={suite.GATE}",))], select)


async def _gate(access: StorageAccess, report: Report, options: Options) -> None:
    if "suite" not in options.only:
        await suite.run(access, report, "gate", [suite.GATE])


async def _service(access: StorageAccess, report: Report, options: Options) -> None:
    await service.run(access, report, options.batches)


async def _load(access: StorageAccess, report: Report, options: Options) -> None:
    await load.run(access, report, options.minutes * 60)


# Counted on Azurite, and rounded up. Minutes are for 30 ms a request.
PARTS: Final[dict[str, Part]] = {
    "suite": Part("storage suite", _suite, lambda _: {"table": 6_000, "queue": 1_200}, lambda _: 3.0),
    "gate": Part("gate of a shard", _gate, lambda _: {"table": 200, "queue": 30}, lambda _: 0.3),
    "service": Part("the service itself", _service, lambda options: {"table": 680 + 1.5 * options.batches, "queue": 0}, lambda _: 1.5),
    "load": Part(
        "load",
        _load,
        lambda options: {"table": 300 + 1_500 * options.minutes, "queue": 200 + 600 * options.minutes},
        lambda options: options.minutes + 0.5,
    ),
}
