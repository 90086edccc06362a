"""`python -m tests.browser.pictures`: creates the pictures of the dashboard and of the command in docs/img from a seeded app."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Browser, Route, ViewportSize, async_playwright, expect

from devhost.azurite import ROOT, Azurite
from devhost.pictures.screens import Printed, Terminal, draw
from tests.conftest import CHROMIUM
from tests.integration.scheduler.conftest import ADMIN_KEY, System, millis_of, text_of
from tests.integration.scheduler.receiver import Receiver

from .page import PANELS, TIMEOUT, Look
from .stage import DEMO_KEY, MINUTE, Stage

FOLDER = ROOT / "docs" / "img"
SCREEN: ViewportSize = {"width": 1280, "height": 860}
WIDE: ViewportSize = {"width": 1920, "height": 1080}
TALL: ViewportSize = {"width": 1280, "height": 1200}
"""Shows the longest form whole."""
PHONE: ViewportSize = {"width": 390, "height": 844}
COLUMNS = 116
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m\n"
COMMANDS = {
    "status": (
        ADMIN_KEY,
        "tocsin status --tenant demo",
        "The command tocsin status shows channels, events, fleets and health of a tenant.",
    ),
    "doctor": (DEMO_KEY, "tocsin leases doctor db", "The command tocsin leases doctor names what is wrong with a fleet, and what to do."),
    "doctor-tenant": (
        ADMIN_KEY,
        "tocsin doctor --tenant demo",
        "The command tocsin doctor names what is wrong with a tenant, and what to do.",
    ),
    "event": (
        DEMO_KEY,
        "tocsin events get patient",
        "The command tocsin events get shows an event, its attempts and the receiver's answers.",
    ),
}
"""Pictures of commands: the key, the command line, and what the picture shows in words."""


def busy(first: int, end: int) -> list[dict[str, Any]]:
    """Made-up minutes: a tide of events, and a receiver that was slow for a while and refused some."""
    minutes = []
    for number, at in enumerate(range(first, end, MINUTE)):
        accepted = round(300 + 140 * math.sin(number / 8) + 23 * math.sin(number * 1.7))
        slow, dead = 32 <= number < 37, 60 if number in (33, 34) else 0
        quick = {"p50": 20 + 30 * (number % 7 == 3), "p99": 100, "max": 110 + 7 * (number % 5)}
        late = {"p50": 500, "p99": 1_000, "max": 1_340} if slow else quick
        ends = {"delivered": accepted - dead, "dead": dead, "open": 0, "lapsed": 0, "cancelled": 0, "moved": 0, "gap": 0}
        minutes.append({"minute": text_of(at), "accepted": accepted, **ends, "late_ms": late})
    return minutes


async def history(route: Route) -> None:
    """The made-up hour, and of the present minute what the service says."""
    items = (await (await route.fetch()).json())["items"]
    asked = parse_qs(urlsplit(route.request.url).query)
    made = busy(millis_of(asked["from"][0]), millis_of(asked["to"][0]) - 3 * MINUTE)
    known = {each["minute"] for each in made}
    await route.fulfill(json={"items": made + [each for each in items if each["minute"] not in known]})


async def load(route: Route) -> None:
    """The tide goes on."""
    asked = parse_qs(urlsplit(route.request.url).query)
    first, end = millis_of(asked["from"][0]), millis_of(asked["to"][0])
    made = busy(first - 60 * MINUTE, end)[60:]
    await route.fulfill(json={"items": [{"minute": each["minute"], "scheduled": each["accepted"]} for each in made]})


async def page(browser: Browser, url: str, size: ViewportSize, scheme: Any = "light") -> Look:
    context = await browser.new_context(viewport=size, locale="en-GB", timezone_id="Europe/Berlin", color_scheme=scheme)
    look = Look(await context.new_page(), url)
    await look.page.route("**/api/v1/history*", history)
    await look.page.route("**/api/v1/load*", load)
    return look


async def settle(look: Look) -> None:
    """Wait until the charts have been drawn, with nothing under the pointer."""
    await look.page.mouse.move(0, 0)
    await look.reads("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def run(url: str) -> None:
    """Draw what the commands print, in their colours."""
    for name, (key, line, alt) in COMMANDS.items():
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_")}
        environment = inherited | {
            "TOCSIN_URL": url,
            "TOCSIN_KEY": key,
            "FORCE_COLOR": "1",
            "COLUMNS": str(COLUMNS),
            "TERM": "xterm-256color",
        }
        command = [sys.executable, "-m", "shared.cli", *line.split()[1:]]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=TIMEOUT / 1000)
        if not done.stdout:
            raise RuntimeError(f"{line}: {done.stderr}")
        screen = Terminal("Terminal", [Printed(PROMPT.format(line) + done.stdout.replace(url, "https://app.example"))])
        (FOLDER / f"command-{name}.svg").write_text(draw(alt, [screen], COLUMNS))


def trouble(stage: Stage) -> None:
    """Other tenants, some of which need a person."""
    stage.tenant("shop", "order-17", "order-18")
    for name in ("billing", "fleet-ops", "newsletter"):
        stage.tenant(name)
    stage.call("POST", "tenants/newsletter/channels/default/pause", {"reason": "the receiver is being moved"}, ADMIN_KEY)


async def shoot(url: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for name, size, scheme in (("light", SCREEN, "light"), ("dark", WIDE, "dark"), ("phone", PHONE, "light")):
            look = await page(browser, url, size, scheme)
            await look.open(ADMIN_KEY, "?tenant=demo")
            for panel in PANELS:
                await look.shows(panel)
            await settle(look)
            await look.page.screenshot(path=FOLDER / f"dashboard-{name}.png", full_page=name == "light")
            if name == "light":
                await look.page.screenshot(path=FOLDER / "dashboard-top.png")
                for panel in ("leases", "turns", "maintenance"):
                    await look.page.locator(f"#panel-{panel}").screenshot(path=FOLDER / f"dashboard-{panel}.png")
        look = await page(browser, url, SCREEN)
        await look.open(ADMIN_KEY, "?tenant=demo&view=events")
        panel = await look.shows("search")
        await panel.get_by_label("Id begins with").fill("bill-")
        await panel.get_by_role("button", name="Search").click()
        await expect(panel.locator("tbody tr")).to_have_count(3)
        await panel.screenshot(path=FOLDER / "dashboard-events.png")
        await panel.get_by_label("Event id").fill("patient")
        await panel.get_by_role("button", name="Open").click()
        dialog = look.page.get_by_role("dialog", name="patient")
        await expect(dialog).to_contain_text("503")
        await dialog.screenshot(path=FOLDER / "dashboard-event.png")
        await look.page.keyboard.press("Escape")
        await panel.get_by_role("button", name="New event").click()
        dialog = look.page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Tomorrow 09:00").click()
        await dialog.get_by_label("Id (optional)").fill("order-17:reminder")
        await dialog.get_by_label("Payload (JSON)").fill('{"order": 17}')
        await dialog.get_by_text("Copy as").click()
        code = dialog.locator("pre", has_text=url)
        await code.evaluate("(code, url) => { code.textContent = code.textContent.replaceAll(url, 'https://app.example'); }", url)
        await dialog.screenshot(path=FOLDER / "dashboard-new-event.png")
        await look.page.keyboard.press("Escape")
        await look.page.get_by_role("link", name="Schedules").click()
        panel = await look.shows("schedules")
        await panel.screenshot(path=FOLDER / "dashboard-schedules.png")
        await panel.get_by_role("button", name="New schedule").click()
        await dialog.get_by_label("Id", exact=True).fill("nightly")
        await dialog.get_by_label("Cron expression").fill("30 2 24-31 3 *")
        await expect(dialog.get_by_text("02:30 does not exist")).to_be_visible()
        await look.page.set_viewport_size(TALL)
        await dialog.screenshot(path=FOLDER / "dashboard-new-schedule.png")
        await look.page.set_viewport_size(SCREEN)
        await look.page.keyboard.press("Escape")
        for view in ("Channels", "Tenants"):
            await look.page.get_by_role("link", name=view).click()
            await (await look.shows(view.lower())).screenshot(path=FOLDER / f"dashboard-{view.lower()}.png")
        await browser.close()


def main() -> None:
    receiver = Receiver().start()
    try:
        with tempfile.TemporaryDirectory() as folder, Azurite(memory=True) as azurite:
            system = System(Path(folder), azurite, receiver)
            try:
                system.host.start()
                with Stage(system.host.url, receiver, "rack-7") as stage:
                    stage.seed()
                    trouble(stage)
                    asyncio.run(shoot(stage.url))
                    run(stage.url)
            finally:
                system.host.end()
    finally:
        receiver.stop()


if __name__ == "__main__":
    main()
