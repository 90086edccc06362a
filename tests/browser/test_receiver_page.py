"""The receiver's own page, in a browser."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Browser, Route

from shared.local.receiver import ReceivedDeliveries
from tests.unit.local.test_http_server import served
from tests.waiting import DEADLINE

from .page import Look, expect
from .stage import EVIL

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
async def test_the_page_adds_what_is_new_and_begins_again_with_another_receiver(browser: Browser, scheme: str, width: int) -> None:
    received = ReceivedDeliveries()
    context = await browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        async with served(received) as port, httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as client:
            url = f"http://127.0.0.1:{port}/receiver"
            look = Look(await context.new_page(), url)
            rows = look.page.locator("#rows tr")
            await client.post(url, content="first")
            await look.page.goto(url)
            await expect(rows).to_have_count(1)
            await expect(look.page.locator("tr.fresh")).to_have_count(0)
            first = await rows.first.element_handle()
            shown: list[str] = []

            async def note(route: Route) -> None:
                answer = await route.fetch()
                shown.extend(each["body"] for each in await answer.json())
                await route.fulfill(response=answer)

            await look.page.route("**/receiver?*", note)
            await client.post(f"{url}/status/503", content=EVIL)
            await expect(rows).to_have_count(2)
            assert shown == [EVIL], "the first one is not asked for again"
            assert first is not None and await first.evaluate("(row) => row.isConnected")
            await expect(rows.first).to_contain_text(EVIL)
            await expect(rows.first).to_have_class("fresh")
            for number in range(100):
                await client.post(url, content=f"later {number}")
            await expect(rows.first).to_contain_text("later 99")
            await expect(rows).to_have_count(100)
            await expect(look.page.get_by_role("status")).to_have_text("100 shown.")
            await look.fits("deliveries")
            # As after a new start.
            received._series, received._arrived, received._text = "0" * 8, 0, None
            received.deliveries.clear()
            await expect(rows).to_have_count(0)
            await expect(look.page.get_by_role("status")).to_have_text("Nothing has arrived yet.")
            await look.page.unroute_all(behavior="ignoreErrors")
            look.was_clean()
    finally:
        await context.close()
