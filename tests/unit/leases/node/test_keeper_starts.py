"""Starts and ends of a keeper where processes fork, and where signals come early."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.leases.node.keeper import LeaseKeeper
from tests.paths import ROOT

from ..conftest import quick_fleet, until

BEFORE = """
import os, sys, threading
from tests.unit.leases.conftest import quick_fleet, until
from shared.leases.node.keeper import LeaseKeeper

keeper = LeaseKeeper("fleet", "a", quick_fleet(2))


def child(work):
    number = os.fork()
    if number == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    if code:
        # On whatever thread this is.
        os._exit(code)


"""

STARTED_AFTER = """
def work():
    keeper.start()
    until(lambda: len(keeper.owned()) == 2, "everything")
    return not keeper.ended(0) and keeper.stop(60)


child(work)
"""

STARTED_AGAIN = """
def work():
    try:
        keeper.start()
    except RuntimeError:
        return keeper.ended(0) and not keeper.owned()


keeper.start()
until(lambda: len(keeper.owned()) == 2, "everything")
child(work)
sys.exit(0 if len(keeper.owned()) == 2 and keeper.stop(60) else 3)
"""

LOCKED = """
def work():
    keeper.publish(load=1.0)
    keeper.drop(1)
    keeper.drain()
    return keeper.stop()


keeper.start()
with keeper._publishing:
    thread = threading.Thread(target=child, args=(work,))
    thread.start()
    thread.join()
sys.exit(0 if keeper.stop(60) else 3)
"""


@pytest.mark.parametrize("then", [STARTED_AFTER, STARTED_AGAIN, LOCKED], ids=["started after", "started again", "locked"])
def test_a_forked_child_starts_a_keeper_of_its_own_and_never_its_parents(then: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEFORE + then], cwd=ROOT, check=False, timeout=120, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stop_that_comes_before_the_start_counts() -> None:
    gained: list[int] = []
    keeper = LeaseKeeper("fleet", "a", quick_fleet(2), on_gained=lambda partition, epoch: gained.append(partition))
    assert keeper.stop()
    with keeper:
        assert not keeper.wait(60)
        until(lambda: keeper.ended(0), "its end")
    assert (gained, keeper.counts["beats"]) == ([], 0)
    with pytest.raises(RuntimeError, match="started once"):
        keeper.start()
