"""The blocking client and lock are those that `make clients` derives from asyncio's."""

from __future__ import annotations

import pytest

from devhost.blocking_client import CLIENT, FOLDERS, LeftOver, blocking, written

SOURCE = '''"""An `AsyncThing` of an AsyncShop: an `async with` block."""

import httpx
from ..sending.concurrent import AsyncPause


class AsyncThing:
    async def __aenter__(self) -> AsyncThing:
        """Return it.

        async with thing:
            await thing.buy()
        """
        self.name = f"an AsyncThing of {await self.shop()}"  # after an await there
        async with httpx.AsyncClient() as client:
            return [item async for item in self.items(client)][await self.first()]
'''
BLOCKING = '''"""A `Thing` of a Shop: a `with` block."""

import httpx
from ..sending.blocking import Pause


class Thing:
    def __enter__(self) -> Thing:
        """Return it.

        with thing:
            thing.buy()
        """
        self.name = f"a Thing of {self.shop()}"  # after an there
        with httpx.Client() as client:
            return [item for item in self.items(client)][self.first()]
'''


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_committed_file_is_the_one_derived_from_asyncio(folder: str) -> None:
    path, text = written(folder)
    assert path.read_text(encoding="utf-8") == text, f"{path} is out of date: run `make clients`, or `python -m devhost.blocking_client`"


def test_every_pair_of_the_client_is_derived_but_what_differs_by_nature() -> None:
    pairs = {path.parent.relative_to(CLIENT).as_posix() for path in CLIENT.rglob("concurrent.py")}
    assert pairs == {*FOLDERS, ".", "locking"}


def test_code_texts_and_comments_lose_asyncio_and_keep_all_else() -> None:
    assert blocking(SOURCE) == BLOCKING


@pytest.mark.parametrize("line", ["import asyncio", '"""Waits on the loop: see asyncio."""', "x = aawait", "# an awaited call"])
def test_a_word_of_asyncio_that_would_be_left_is_an_error_with_its_line(line: str) -> None:
    with pytest.raises(LeftOver, match=r"^line 2 of the blocking code has '(async|await)'"):
        blocking(f"x = 1\n{line}\n")
