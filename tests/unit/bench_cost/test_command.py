"""The command and the pages, with invented measurements."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from bench.cost import command, page, wakes
from bench.cost.loads import Bulk, Load
from bench.cost.prices import Prices
from bench.cost.rules import Invocation, Operations, Record
from bench.flex import page as flex

NOTES: dict[str, object] = {"limit": "control groups", "failed": {}, "cold_starts": {}, "telemetry_records": {}}


def record() -> Record:
    ticks = [Invocation("sweep", "function:sweep", 15.0 * n, 15.0 * n + 0.25) for n in range(4)]
    return Record(
        (0, 60), ticks, Operations(table=100, queue=5, targets={"GET TocsinShards": 7}), {"MetricData": 1e5}, 10, timers=["sweep"]
    )


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Restore the levels of the loggers that the command silences: other tests of this process read their lines."""
    loggers = [logging.getLogger(name) for name in ("azure", "shared")]
    before = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The loads that were measured; one fails at 2,048 MB."""
    seen: list[tuple[str, int]] = []

    async def run(load: Load | Bulk, memory_mb: int, seconds: float, show: Any) -> tuple[Record, dict[str, object]]:
        seen.append((load.title, memory_mb))
        show(load.title, seconds, seconds)
        if isinstance(load, Load) and load.title.startswith("60") and memory_mb == 2048:
            raise RuntimeError("no room")
        return record(), NOTES

    monkeypatch.setattr(command, "run", run)
    return seen


def test_json_has_the_figures_of_each_load_and_size(measured: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "idle", "bulk", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["load"], each["memory_mb"], each["unit"]) for each in found["loads"]] == [
        ("idle", 512, "month"),
        ("idle", 2048, "month"),
        ("bulk", 512, "million"),
        ("bulk", 2048, "million"),
    ]
    idle, bulk = found["loads"][0], found["loads"][2]
    # Four seconds a minute at half a GB; ten events a minute are a hundred thousand minutes for a million.
    assert (idle["gb_seconds"], idle["executions"], idle["transactions"]) == (86_400, 172_800, 43_200 * (100 + 5 + 8 + 2))
    assert (bulk["gb_seconds"], bulk["usd"] == bulk["usd_before_free"]) == (200_000, True)
    assert idle["usd"] == pytest.approx(sum(idle["parts"].values()), abs=0.001)
    assert idle["seconds_by_function"] == {"sweep": [0.25, 0.25]}


def test_table_names_what_failed(measured: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "posted-60"]) == 1
    out = capsys.readouterr().out
    assert "60 events a minute" in out and "posted-60, 2048 MB: RuntimeError: " in out
    assert len(measured) == 2


def test_wrong_prices_are_explained(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--prices", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_fresh_results_replace_those_of_the_same_load_and_size() -> None:
    def load(name: str, size: int, usd: float) -> dict[str, Any]:
        return {"load": name, "memory_mb": size, "usd": usd}

    former = {"machine": {"date": "old"}, "loads": [load("idle", 512, 1), load("idle", 2048, 2), load("bulk", 512, 3)]}
    fresh = {"machine": {"date": "new"}, "loads": [load("bulk", 512, 4), load("turns", 512, 5)]}
    found = page.merged(former, fresh)
    assert found["machine"] == {"date": "new"}
    assert [(each["load"], each["usd"]) for each in found["loads"]] == [("idle", 1), ("idle", 2), ("turns", 5), ("bulk", 4)]


def test_blocks_are_written_between_their_marks(measured: list[tuple[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--only", "idle", "bulk", "--json"])
    made = page.blocks(json.loads(capsys.readouterr().out))
    text = page.update("before\n<!-- cost:summary -->\nold\n<!-- end -->\nafter\n", made)
    assert text.startswith("before\n<!-- cost:summary -->\n\n| load |") and text.endswith("|\n\n<!-- end -->\nafter\n")
    assert "old" not in text and "| idle |" in text and page.update(text, made) == text
    with pytest.raises(page.PageError, match="no block 'nothing'"):
        page.update("<!-- cost:nothing --><!-- end -->", made)


def test_pages_show_the_committed_results() -> None:
    made = page.blocks(page.read())
    for each in page.PAGES:
        text = each.read_text()
        assert "<!-- cost:" in text
        assert page.update(text, made) == text, f"run: python -m bench cost --page, or page.write(page.read()) for {each.name}"


def test_committed_results_follow_from_their_amounts() -> None:
    results = page.read()
    costs = results["prices"]
    assert "idle" in {each["load"] for each in results["loads"]} <= set(command.LOADS)
    for each in results["loads"]:
        free = each["unit"] == "month"
        seconds = sum(each["billed_seconds"].values())
        made, parts = each["operations"], each["parts"]
        assert each["gb_seconds"] == pytest.approx(seconds * each["memory_mb"] / 1024, abs=10)
        assert each["usd"] == pytest.approx(sum(parts.values()), abs=0.01)
        assert each["transactions"] == pytest.approx(sum(made.values()), abs=2)
        expected = {
            "compute": max(0, each["gb_seconds"] - costs["free_gb_seconds"] * free) * costs["gb_second"],
            "executions": max(0, each["executions"] - costs["free_executions"] * free) * costs["million_executions"] / 1e6,
            "tables": made["table"] * costs["table_10k"] / 1e4,
            "queues": (made["queue"] + made["polls"]) * costs["queue_10k"] / 1e4,
        }
        assert {name: parts[name] for name in expected} == pytest.approx(expected, abs=0.01), each["title"]


def _with_and_without(kilo_gb_seconds: float, **more: float) -> dict[str, Any]:
    none = {"executions": 0.0, "table": 0.0, "queue": 0.0, "polls": 0.0}
    with_wakes = {"kilo_gb_seconds": {"fire": kilo_gb_seconds}, "operations": none | more}
    title = "1 event a minute"
    return {f"{title}, auto: a month": with_wakes, f"{title}, off: a month": {"kilo_gb_seconds": {}, "operations": none}}


def test_wakes_are_billed_once_the_free_amounts_of_the_load_are_used_up() -> None:
    prices = Prices()
    figures = _with_and_without(50.0, executions=300_000.0, table=1e4, queue=2e4, polls=3e4)
    measured = {"load": "posted-1", "gb_seconds": 60_000, "executions": 0, "executions_by_function": {"fire_shard": 1}}

    small = wakes.added(measured | {"memory_mb": 512}, figures, prices)
    large = wakes.added(measured | {"memory_mb": 2_048, "gb_seconds": 240_000}, figures, prices)
    idle = wakes.added(measured | {"memory_mb": 512, "executions_by_function": {}}, figures, prices)

    executions = 0.05 * prices.million_executions
    requests = prices.table_10k + 2 * prices.queue_10k
    assert small == pytest.approx(10_000 * prices.gb_second + executions + requests)
    assert large == pytest.approx(200_000 * prices.gb_second + executions + requests)
    assert idle - small == pytest.approx(3 * prices.queue_10k), "a listener that serves shards polls already"


def test_each_load_of_a_month_is_shown_with_wakes() -> None:
    results, figures = page.read(), flex.read()["figures"]
    shown = page.blocks(results)["summary"].splitlines()
    for each in results["loads"]:
        if each["unit"] == "month" and each["memory_mb"] == 512:
            [row] = [line for line in shown if line.startswith(f"| {each['title']} |")]
            assert float(row.split("|")[2].replace(",", "")) == pytest.approx(each["usd"] + wakes.added(each, figures, Prices()), abs=0.006)
            assert each["load"] in wakes.LIKE
