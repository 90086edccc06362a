"""Writes the figures of the documentation into marked blocks, from `results.json`, which `python -m bench cost --page` updates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT
from shared.app.timers import SCHEDULES, SOON_FUNCTION
from shared.scheduler.queue_functions import QUEUE_FUNCTIONS

from ..flex import page as flex
from . import rules, wakes
from .loads import LOADS
from .prices import Prices

RESULTS: Final = Path(__file__).parent / "results.json"
"""The figures that the documentation shows."""
PAGES: Final = (ROOT / "docs" / "how-to" / "what-it-costs.md",)
SIZES: Final = (512, 2048)

EVENTS_OF_ZRS: Final = 10_000_000
"""Events a month in the row about redundancy."""
FREE_LOGS: Final = 5.0
"""GB of logs a month that are free for a billing account."""

type Results = Mapping[str, Any]


class PageError(Exception):
    """A page names a block that does not exist."""


def merged(former: Results, fresh: dict[str, Any]) -> dict[str, Any]:
    """Return fresh results, with the loads of the former ones that were not measured again."""
    found = {(each["load"], each["memory_mb"]): each for each in [*former["loads"], *fresh["loads"]]}
    order = {name: number for number, name in enumerate(LOADS)}
    return {**fresh, "loads": sorted(found.values(), key=lambda each: (order[each["load"]], each["memory_mb"]))}


def update(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with its blocks, `<!-- cost:NAME -->` to `<!-- end -->`, replaced. Raises PageError."""

    def block(found: re.Match[str]) -> str:
        if found[1] not in blocks:
            raise PageError(f"there is no block {found[1]!r}; there are {', '.join(blocks)}")
        return f"<!-- cost:{found[1]} -->\n\n{blocks[found[1]].strip()}\n\n<!-- end -->"

    return re.sub(r"<!-- cost:(\w+) -->.*?<!-- end -->", block, text, flags=re.DOTALL)


def blocks(results: Results) -> dict[str, str]:
    """Return every block of figures as Markdown."""
    loads = _by_load(results)
    return {
        "summary": "\n".join(_summary(loads, flex.read()["figures"])),
        "more": "\n".join(_more(Prices())),
    }


def write(results: Results) -> None:
    """Write the blocks of all pages."""
    made = blocks(results)
    for page in PAGES:
        page.write_text(update(page.read_text(), made))


def _by_load(results: Results) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for each in results["loads"]:
        found.setdefault(each["load"], {})[each["memory_mb"]] = each
    return found


def _table(head: Sequence[str], right: int, rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table. right: number of first columns that hold text; the others are aligned to the right."""
    rule = ["---"] * right + ["---:"] * (len(head) - right)
    return [f"| {' | '.join(each)} |" for each in (head, rule, *rows)]


def _usd(amount: float) -> str:
    return f"{amount:,.2f}" if abs(amount) >= 0.005 or not amount else f"{amount:.4f}"


def _summary(loads: Mapping[str, Mapping[int, Any]], figures: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            next(iter(sizes.values()))["title"],
            *(_usd(sizes[size]["usd"] + wakes.added(sizes[size], figures, Prices())) if size in sizes else "" for size in SIZES),
        ]
        for sizes in loads.values()
    ]
    return _table(["load", *(f"USD, {size:,} MB" for size in SIZES)], 1, rows)


def groups() -> int:
    """Return the number of groups of functions that scale alone: all HTTP functions together, and every other one."""
    return 1 + len({SOON_FUNCTION, *SCHEDULES, *(name for name, *_ in QUEUE_FUNCTIONS)})


def _more(prices: Prices) -> list[str]:
    queues = len({queue for _, queue, _ in QUEUE_FUNCTIONS}) + 1
    address = prices.nat_gateway + prices.public_address
    dear = replace(prices, ready_gb_second=prices.ready_gb_second_most)
    stored = EVENTS_OF_ZRS * prices.event_row_bytes * prices.kept_days / 30 / 1e9

    def row(title: str, cost: Callable[[int], float], most: Callable[[int], float] | None = None) -> list[str]:
        if most is None:
            return [title, *(_usd(cost(size)) for size in SIZES)]
        return [title, *(f"{_usd(cost(size))} to {_usd(most(size))}" for size in SIZES)]

    def ready(instances: int, own: Prices) -> Callable[[int], float]:
        return lambda size: rules.ready(instances, size, 0.0, own)

    return _table(
        ["beside it", *(f"USD, {size:,} MB" for size in SIZES)],
        1,
        [
            row("an always-ready instance, idle", ready(1, prices), ready(1, dear)),
            row("the same, always executing", lambda size: rules.ready(1, size, 1.0, prices)),
            row(f"`zoneRedundant`: two idle ones in {groups()} groups", ready(2 * groups(), prices), ready(2 * groups(), dear)),
            row("`natGateway`, each region", lambda _: address),
            row(
                "`Standard_ZRS` (default): 10 million events more",
                lambda _: stored * (prices.stored_gb_zrs - prices.stored_gb),
            ),
            row(
                f"looks of the scale controller at {queues} queues, if billed",
                lambda _: 0.0,
                lambda _: rules.controller_polls(queues, prices),
            ),
            row("a queue listener that always lives", lambda _: rules.listener_polls(prices)),
            row(
                f"{FREE_LOGS:g} free GB of logs",
                lambda _: -FREE_LOGS * prices.log_gb,
                lambda _: -FREE_LOGS * prices.log_gb_least,
            ),
        ],
    )


def read() -> dict[str, Any]:
    """Return the committed results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found
