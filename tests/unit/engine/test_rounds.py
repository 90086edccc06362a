"""Requests for one key are served together, those for different keys beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shared.core.clock import SettableClock
from shared.engine.rounds import Rounds, Served


class Server:
    """Records its rounds. A round lasts until `go` is set."""

    def __init__(self, pause: float = 0.0, takes: int = 100) -> None:
        self.rounds: list[tuple[str, list[int]]] = []
        self.go, self.began = asyncio.Event(), asyncio.Event()
        self.clock, self._pause, self._takes = SettableClock(), pause, takes
        self.served = Rounds(self._serve, self.clock, 4)

    async def _serve(self, key: str, requests: Sequence[int]) -> Served[int]:
        self.rounds.append((key, list(requests)))
        self.began.set()
        await self.go.wait()
        if 13 in requests:
            raise LookupError("13")
        return Served([ValueError(str(each)) if each == 7 else each * 10 for each in requests[: self._takes]], self._pause)


async def test_requests_that_come_during_a_round_share_the_next_one() -> None:
    server = Server()
    first = asyncio.create_task(server.served.ask("a", 1))
    await server.began.wait()
    others = [asyncio.create_task(server.served.ask("a", each)) for each in (2, 3, 4)]
    await asyncio.sleep(0)
    server.go.set()
    assert [await each for each in (first, *others)] == [10, 20, 30, 40]
    assert server.rounds == [("a", [1]), ("a", [2, 3, 4])]


async def test_keys_do_not_wait_for_each_other() -> None:
    server = Server()
    asks = [asyncio.create_task(server.served.ask(key, 1)) for key in "ab"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.rounds == [("a", [1]), ("b", [1])]
    server.go.set()
    await asyncio.gather(*asks)


async def test_what_a_round_leaves_comes_first_in_the_next_which_begins_at_once() -> None:
    server = Server(pause=60.0, takes=2)
    server.go.set()
    assert await asyncio.gather(*(server.served.ask("a", each) for each in range(1, 7))) == [10, 20, 30, 40, 50, 60]
    assert [requests for _, requests in server.rounds] == [[1, 2, 3, 4], [3, 4, 5, 6], [5, 6]]


async def test_a_round_waits_for_the_pause_that_the_last_one_asked_for() -> None:
    server = Server(pause=2.0)
    server.go.set()
    assert await server.served.ask("a", 1) == 10
    later = [asyncio.create_task(server.served.ask("a", each)) for each in (2, 3)]
    await server.clock.advance(1.9)
    assert len(server.rounds) == 1
    await server.clock.advance(0.1)
    assert [await each for each in later] == [20, 30]
    assert server.rounds[1:] == [("a", [2, 3])]


async def test_an_error_of_one_request_is_its_own_and_an_error_of_the_round_is_everybodys() -> None:
    server = Server()
    server.go.set()
    found = await asyncio.gather(*(server.served.ask("a", each) for each in (6, 7)), return_exceptions=True)
    assert (found[0], type(found[1])) == (60, ValueError)
    found = await asyncio.gather(*(server.served.ask("a", each) for each in (12, 13)), return_exceptions=True)
    assert [type(each) for each in found] == [LookupError, LookupError]
    assert await server.served.ask("a", 1) == 10


async def test_a_caller_that_gives_up_leaves_the_others_alone() -> None:
    server = Server()
    first = asyncio.create_task(server.served.ask("a", 1))
    await server.began.wait()
    second, third = (asyncio.create_task(server.served.ask("a", each)) for each in (2, 3))
    await asyncio.sleep(0)
    first.cancel()
    second.cancel()
    server.go.set()
    assert await third == 30
    assert server.rounds == [("a", [1]), ("a", [3])]
    with pytest.raises(asyncio.CancelledError):
        await first
