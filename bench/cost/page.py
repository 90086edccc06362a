"""Writes the figures of the documentation into marked blocks, from `results.json`, which `python -m bench cost --page` updates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT
from shared.app.timers import SCHEDULES, SOON_FUNCTION
from shared.scheduler.queue_functions import QUEUE_FUNCTIONS

from . import rules
from .loads import LOADS
from .prices import Prices

RESULTS: Final = Path(__file__).parent / "results.json"
"""The figures that the documentation shows."""
PAGES: Final = (ROOT / "docs" / "how-to" / "what-it-costs.md",)
SIZES: Final = (512, 2048)

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
        "summary": "\n".join(_summary(loads)),
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
    return f"{amount:,.2f}" if amount >= 0.005 or not amount else f"{amount:.4f}"


def _summary(loads: Mapping[str, Mapping[int, Any]]) -> list[str]:
    rows = [
        [next(iter(sizes.values()))["title"], *(_usd(sizes[size]["usd"]) if size in sizes else "" for size in SIZES)]
        for sizes in loads.values()
    ]
    return _table(["load", *(f"USD, {size:,} MB" for size in SIZES)], 1, rows)


def groups() -> int:
    """Return the number of groups of functions that scale alone: all HTTP functions together, and every other one."""
    return 1 + len({SOON_FUNCTION, *SCHEDULES, *(name for name, *_ in QUEUE_FUNCTIONS)})


def _more(prices: Prices) -> list[str]:
    queues = len({queue for _, queue, _ in QUEUE_FUNCTIONS}) + 1
    address = prices.nat_gateway + prices.public_address

    def row(title: str, cost: Callable[[int], float]) -> list[str]:
        return [title, *(_usd(cost(size)) for size in SIZES)]

    return _table(
        ["beside it", *(f"USD, {size:,} MB" for size in SIZES)],
        1,
        [
            row("an always-ready instance that is idle", lambda size: rules.ready(1, size, 0.0, prices)),
            row("an always-ready instance that always executes", lambda size: rules.ready(1, size, 1.0, prices)),
            row(f"`zoneRedundant`: two idle ones of each of {groups()} groups", lambda size: rules.ready(2 * groups(), size, 0.0, prices)),
            row("`natGateway`, for each region", lambda _: address),
            row(f"the scale controller's looks at {queues} queues, if they are billed", lambda _: rules.controller_polls(queues, prices)),
        ],
    )


def read() -> dict[str, Any]:
    """Return the committed results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found
