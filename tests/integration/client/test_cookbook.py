"""The programs of the cookbook run beside the app, as their page says. Their tests, in which days pass, run with the wheel."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.integration.scheduler.conftest import System

from .conftest import EXAMPLES

PRINTED = {
    "orders": "Order 17 is cancelled, order 18 is paid.",
    "partner": "Parcel A1 is accepted. The partner answered 503, 503, 200.",
    "reconciliation": "Bookings of yesterday without a payment: {18}.",
    "prices": "Tea costs {('tea', 'Asia/Tokyo'): 349}.",
}


async def test_programs_of_the_cookbook_do_what_they_say(system: System, as_installed: Path) -> None:
    env = os.environ | {"TOCSIN_URL": system.host.url, "PYTHONPATH": str(as_installed)}

    async def run(name: str) -> tuple[str, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, f"{name}.py", cwd=EXAMPLES / "cookbook", env=env, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate()
        return name, printed.decode().splitlines()[-1]

    assert dict(await asyncio.gather(*map(run, PRINTED))) == PRINTED
