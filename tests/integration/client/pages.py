"""Runs what the pages tell a reader to type: shell blocks, with this test's addresses, and a `curl` that every machine has."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

CURL = f'''#!{sys.executable}
"""As much of curl as the pages use."""
import argparse
import sys

import httpx

parser = argparse.ArgumentParser()
parser.add_argument("-s", action="store_true")
parser.add_argument("-f", action="store_true")
parser.add_argument("-X", default="GET")
parser.add_argument("-H", action="append", default=[])
parser.add_argument("-d")
parser.add_argument("-o")
parser.add_argument("url")
given = parser.parse_args()
headers = dict(header.split(": ", 1) for header in given.H)
answer = httpx.request(given.X, given.url, headers=headers, content=given.d, timeout=180)
if given.o is None:
    print(answer.text, end="")
sys.exit(22 if given.f and answer.is_error else 0)
'''


def shell_blocks(page: Path) -> list[str]:
    """The blocks of a page that are marked as shell."""
    return re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)


async def run(block: str, folder: Path, addresses: Mapping[str, str]) -> str:
    """Return the output of the block, run in `folder` with `addresses` in place of those on the page; every command must succeed."""
    for documented, ours in addresses.items():
        assert documented in block, documented
        block = block.replace(documented, ours)
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    curl = tools / "curl"
    curl.write_text(CURL)
    curl.chmod(0o755)
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-euc", block],
        cwd=folder,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
