"""The search box of the documentation, as the site has it: a newcomer's question leads to the page that answers it.

The questions are in the words of three readers who know no page yet: a Python developer who wants a reminder sent, an operator on Azure at
3 a.m., and a lead who compares with QStash, Temporal and a cron job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from .page import TIMEOUT

DEVELOPER = {
    "send a reminder in 30 days": "start/first-steps",
    "schedule a callback from python": "reference/client",
    "verify the signature of a webhook": "reference/client",
    "cancel a scheduled event": "how-to/change-many-events",
    "what happens if my server is down": "how-to/while-your-endpoint-is-down",
    "received the same event twice": "how-to/exactly-once",
    "every night at 2:30 in my time zone": "reference/schedules",
    "unit test without waiting a month": "how-to/testing",
    "retry only three times": "how-to/retry-less-or-more",
    "maximum delay of an event": "reference/limits",
}
OPERATOR = {
    "readyz answers 503": "how-to/operations",
    "redrive all dead letters": "how-to/change-many-events",
    "alert unowned-partitions": "how-to/operations",
    "why are events late": "how-to/why-was-it-late",
    "roll back a deployment": "how-to/upgrade",
    "admin key was leaked": "how-to/rotate-an-admin-key",
    "storage account is throttled": "how-to/operations",
    "region is down failover": "how-to/move-region",
    "messages in the poison queue": "how-to/operations",
    "stop deliveries to a broken endpoint": "how-to/pause-a-channel",
    "drain a Kubernetes node": "how-to/kubernetes",
}
LEAD = {
    "compare with QStash": "how-to/choose",
    "Temporal workflows": "how-to/choose",
    "replace a cron job": "how-to/migrate-from-cron",
    "cost per month": "how-to/what-it-costs",
    "exactly once": "how-to/exactly-once",
    "events per second throughput": "explain/performance",
    "Kubernetes container": "how-to/container",
    "several teams one installation": "how-to/give-a-team-a-tenant",
    "events in order": "how-to/ordering-keys",
    "how long is data kept": "how-to/how-long-is-it-kept",
}
WORDS_OF_OTHERS = {
    "resend": "how-to/change-many-events",
    "replay": "how-to/change-many-events",
    "retry failed": "how-to/change-many-events",
    "DLQ": "how-to/change-many-events",
    "DST": "reference/schedules",
    "daylight saving": "reference/schedules",
    "time zone": "reference/schedules",
    "FIFO": "how-to/ordering-keys",
    "idempotency": "how-to/exactly-once",
    "idempotent": "how-to/exactly-once",
    "deduplicate": "how-to/exactly-once",
    "delayed job": "start/first-steps",
    "delayed message": "start/first-steps",
    "SLA": "how-to/choose",
    "alternatives": "how-to/choose",
    "how far ahead": "reference/limits",
    "how far in the future": "reference/limits",
    "429": "reference/api",
    "rate limit": "reference/api",
    "debounce": "how-to/collapse",
    "dead man's switch": "how-to/heartbeat",
    "mutex": "how-to/lock",
    "leader election": "how-to/lock",
    "fan-out": "how-to/several-channels",
    "mTLS": "how-to/client-certificates",
    "GitOps": "how-to/declare",
    "deploy": "how-to/deploy",
    "pricing": "how-to/what-it-costs",
    "how late": "explain/performance",
    "latency": "explain/performance",
    "docker": "how-to/container",
    "backoff": "how-to/retry-less-or-more",
    "disaster recovery": "how-to/move-region",
    "tocsin dev": "how-to/run-it-here",
    "dev server": "how-to/run-it-here",
    "SQLite": "how-to/run-it-here",
    "connection refused": "how-to/while-your-endpoint-is-down",
    "DNS": "how-to/while-your-endpoint-is-down",
    "AKS": "how-to/kubernetes",
    "PodDisruptionBudget": "how-to/kubernetes",
    "node termination handler": "how-to/kubernetes",
}
"""Words of other products, and of readers who know them, that the pages themselves may not use."""


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, site: str) -> AsyncIterator[Page]:
    """A page at the site's entry."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT)
    await page.goto(f"{site}index.html")
    await ready(page)
    yield page
    await context.close()


HITS = """question => {
    const box = document.querySelector("input.md-search__input");
    const said = document.querySelector(".md-search-result__meta").textContent.trim();
    const hits = [...document.querySelectorAll(".md-search-result__list > li")].map(each => each.querySelector("a").href);
    return box.value === question && /match|No/.test(said) && (hits.length || /No/.test(said)) ? hits : null;
}"""


async def ready(page: Page) -> None:
    """Open the search box, and wait until it has read its index."""
    await page.locator("input.md-search__input").click()
    await page.wait_for_function("() => /Type to start/.test(document.querySelector('.md-search-result__meta').textContent)")


async def search(page: Page, question: str) -> list[str]:
    """Return the names of the pages that the search box finds, the best first."""
    box = page.locator("input.md-search__input")
    await box.fill("")
    await box.press("End")  # the box looks at its text when a key goes up
    await page.wait_for_function("() => document.querySelectorAll('.md-search-result__list > li').length === 0")
    await box.fill(question)
    await box.press("End")
    found = await page.wait_for_function(HITS, arg=question)
    root = page.url.rpartition("/")[0] + "/"
    return [each.removeprefix(root).partition("?")[0].removesuffix(".html") for each in await found.json_value()]


@pytest.mark.asyncio(loop_scope="session")
async def test_each_question_of_a_newcomer_finds_its_page_among_the_first_three_hits(page: Page) -> None:
    missed = {}
    for question, answer in (DEVELOPER | OPERATOR | LEAD | WORDS_OF_OTHERS).items():
        hits = await search(page, question)
        if answer not in hits[:3]:
            missed[question] = (answer, hits[:5])
    assert missed == {}, missed
