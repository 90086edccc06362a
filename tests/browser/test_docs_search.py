"""The search box of the documentation, as the site has it: a newcomer's question leads to the page that answers it.

The questions are in the words of three readers who know no page yet: a Python developer who wants a reminder sent, an operator on Azure at
3 a.m., and a lead who compares with QStash, Temporal and a cron job.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests import waiting
from tests.paths import ROOT

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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site that `make docs` builds."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = waiting.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    serving.join()
    server.server_close()


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
    for question, answer in (DEVELOPER | OPERATOR | LEAD).items():
        hits = await search(page, question)
        if answer not in hits[:3]:
            missed[question] = (answer, hits[:5])
    assert missed == {}
