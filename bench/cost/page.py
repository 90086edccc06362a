"""Writes the figures of the documentation into marked blocks, from `results.json`, which `python -m bench cost --page` updates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT

from . import prices
from .loads import LOADS

RESULTS: Final = Path(__file__).parent / "results.json"
"""The figures that the documentation shows."""
PAGES: Final = (ROOT / "docs" / "explain" / "cost.md", ROOT / "docs" / "how-to" / "what-it-costs.md")
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
        "loads": "\n".join(_loads(loads)),
        "parts": "\n".join(_parts(loads)),
        "example": "\n".join(_example(loads["idle"][512], results["prices"])) if 512 in loads.get("idle", {}) else "",
        "prices": "\n".join(_prices(results["prices"])),
        "machine": "\n".join(f"- {name}: {text}" for name, text in results["machine"].items() if name != "azurite"),
        "summary": "\n".join(_summary(loads)),
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


def _loads(loads: Mapping[str, Mapping[int, Any]]) -> list[str]:
    head = ["load", *(f"USD, {size:,} MB" for size in SIZES), *(f"GB-s, {size:,} MB" for size in SIZES), "executions", "transactions"]

    def row(sizes: Mapping[int, Any]) -> list[str]:
        shown = [sizes.get(size) for size in SIZES]
        some = next(each for each in shown if each is not None)
        title = some["title"] if some["unit"] == "month" else f"{some['title']} (USD for the million, before free amounts)"
        cells = [_usd(each["usd"]) if each else "" for each in shown] + [f"{each['gb_seconds']:,}" if each else "" for each in shown]
        return [title, *cells, f"{some['executions']:,}", f"{some['transactions']:,}"]

    return _table(head, 1, map(row, loads.values()))


def _parts(loads: Mapping[str, Mapping[int, Any]]) -> list[str]:
    """Return the parts of each load's price on the smallest instances."""
    shown = [sizes[SIZES[0]] for sizes in loads.values() if SIZES[0] in sizes]
    names = list(dict.fromkeys(name for each in shown for name, usd in each["parts"].items() if usd >= 0.005))
    rows = [[each["title"], *(_usd(each["parts"].get(name, 0.0)) for name in names), _usd(each["usd"])] for each in shown]
    return _table(["load", *names, "sum"], 1, rows)


def _example(idle: Mapping[str, Any], costs: Mapping[str, float]) -> list[str]:
    """Return the arithmetic of one line of the table."""
    parts, made = idle["parts"], idle["operations"]
    groups = " + ".join(f"{each:,}" for each in idle["billed_seconds"].values())
    free_seconds, free_calls = f"{costs['free_gb_seconds']:,.0f}", f"{costs['free_executions']:,.0f}"
    rows = [
        ["compute", f"({groups}) s x 0.5 GB = {idle['gb_seconds']:,} GB-s; those over {free_seconds} x {costs['gb_second']:.6f}"],
        ["executions", f"{idle['executions']:,}; those over {free_calls} x {costs['million_executions']:.2f} / 1,000,000"],
        ["tables", f"{made['table']:,} x {costs['table_10k']:.5f} / 10,000"],
        ["queues", f"({made['queue']:,} + {made['polls']:,} polls of listeners) x {costs['queue_10k']:.3f} / 10,000"],
        ["blobs", f"{made['blob']:,} renewals of leases x {costs['blob_10k']:.3f} / 10,000"],
        ["logs", f"{sum(idle['log_mb'].values()) / 1000:.3f} GB x {costs['log_gb']:.2f}"],
    ]
    fixed = [name for name in ("platform metrics", "alert rules", "vault", "network") if parts.get(name)]
    rows += [[name, "[the snapshot](#what-is-billed)"] for name in fixed]
    lines = [[*each, _usd(parts[each[0]])] for each in rows]
    return _table(["part", "arithmetic", "USD"], 2, [*lines, ["sum", "", _usd(idle["usd"])]])


def _prices(values: Mapping[str, float]) -> list[str]:
    about = prices.about()
    rows = [[f"`{name}`", about[name][0], about[name][1], f"{value:.10f}".rstrip("0").rstrip(".")] for name, value in values.items()]
    return _table(["name", "meaning", "source", "value"], 3, rows)


def _summary(loads: Mapping[str, Mapping[int, Any]]) -> list[str]:
    rows = [
        [next(iter(sizes.values()))["title"], *(_usd(sizes[size]["usd"]) if size in sizes else "" for size in SIZES)]
        for sizes in loads.values()
    ]
    return _table(["load", *(f"USD, {size:,} MB" for size in SIZES)], 1, rows)


def read() -> dict[str, Any]:
    """Return the committed results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found
