"""Lists by label, beginning of the id, and last error."""

from __future__ import annotations

from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from shared.scheduler.queries import lookup

from ..harness import World

LIST = "/api/v1/events"


async def ids(world: World, query: str) -> list[str]:
    return sorted(item["id"] for item in await world.demo.all(f"{LIST}?{query}"))


async def test_list_shows_events_with_all_labels_of_the_filter(world: World) -> None:
    await world.demo.create(id="a-1", delay="PT1H", labels={"order": "17", "team": "x,y"})
    await world.demo.create(id="a-2", delay="PT1H", labels={"order": "17"})
    await world.demo.create(id="b-3", delay="PT2H", labels={"order": "170"})
    await world.demo.create(id="b-4", delay="PT2H")
    assert await ids(world, "label=order%3D17") == ["a-1", "a-2"]
    assert await ids(world, "label=order=17,team=x%5C,y") == ["a-1"]
    assert await ids(world, "label=order=1") == []
    assert await ids(world, "id_prefix=b-") == ["b-3", "b-4"]
    assert await ids(world, "id_prefix=b-&label=order=170&state=scheduled&channel=default") == ["b-3"]
    assert await ids(world, "label=order=17&from=2100-01-01T00:00:00Z") == []


async def test_list_finds_events_by_their_last_error(world: World) -> None:
    world.receiver.script("dead", Verdict("final", 400, "the order is Unknown"))
    await world.demo.create(id="dead", delay="PT1S")
    await world.demo.create(id="well", delay="PT1S")
    await world.run(10)
    assert await ids(world, "error=ORDER%20is%20unknown") == ["dead"]
    assert await ids(world, "error=no-such-text") == []


async def test_page_that_looks_at_errors_is_bounded_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        world.receiver.script(f"e{number}", Verdict("final", 400, "x" * 400))
        await world.demo.create(id=f"e{number}", due=f"2027-01-15T08:0{number}:30Z")
    await world.run(240, 1)
    monkeypatch.setattr(lookup, "PAGE_BYTES", 500)
    pages = await world.demo.pages(f"{LIST}?error=another")
    assert len(pages) == 2 and not any(pages), "two errors are more than a page may read"
    assert await ids(world, "error=xxx") == ["e0", "e1", "e2"]


@pytest.mark.parametrize("query", ["label=order", "label=", "label=a=1,b=1,c=1,d=1,e=1", "id_prefix=a/b", "error="])
async def test_filter_that_cannot_be_read_is_refused(world: World, query: str) -> None:
    refused = await world.demo.get(f"{LIST}?{query}")
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == f"?{query.partition('=')[0]}"


async def test_page_that_ends_at_a_bound_says_that_it_is_incomplete(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        await world.demo.create(id=f"e{number}", due=f"2027-01-15T09:{number:02}:00Z", labels={"odd": str(number % 2)})
    whole = (await world.demo.get(f"{LIST}?label=odd=1")).json()
    assert len(whole["items"]) == 3 and whole["next"] is None and "incomplete" not in whole
    monkeypatch.setattr(lookup, "ROWS_PER_PAGE", 2)
    pages: list[dict[str, Any]] = []
    cursor = ""
    while not pages or pages[-1]["next"]:
        pages.append((await world.demo.get(f"{LIST}?label=odd=1{cursor}")).json())
        cursor = f"&cursor={pages[-1]['next']}"
    assert len(pages) > 1 and [page.get("incomplete") for page in pages] == [True] * (len(pages) - 1) + [None]
    assert sorted(item["id"] for page in pages for item in page["items"]) == ["e1", "e3", "e5"]
