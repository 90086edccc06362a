"""The keeper on real threads, when applications, operators, the machine and storage do what they should not."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import ROOT
from shared.core.clock import SystemClock
from shared.core.errors import OutcomeUnknown, Rejected, TocsinError, Unavailable
from shared.leases.node import state_file
from shared.leases.node.keeper import LeaseKeeper, NameInUse
from shared.leases.profiles import Profile
from shared.leases.rows import server_key
from shared.storage.names import FLEETS

from ..conftest import KEY, FaultyTables, quick_fleet, until
from .keepers import ALL, PARTITIONS, Servers

CALM = Profile(0.2, 20, 21.5)
"""Nothing expires while a test runs, however busy the machine."""


def levels(caplog: pytest.LogCaptureFixture, action: str) -> list[int]:
    return [record.levelno for record in caplog.records if getattr(record, "action", "") == action]


# -- what applications do


def test_to_take_part_again_does_not_take_a_stop_back(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")
    # It goes on serving while its successor hears of it.
    assert not a.keeper.stop(0.01)
    a.keeper.undrain()
    assert a.keeper.ended(60) and a.has() == set()
    until(lambda: b.has() == ALL, "taken over")


def test_to_drain_again_and_again_puts_nothing_off(servers: Servers) -> None:
    a, b = servers.start("a"), servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")

    def drained() -> bool:
        a.keeper.drain()
        return b.has() == ALL

    until(drained, "drained")


def test_a_signals_handler_may_say_anything_while_its_thread_does(servers: Servers) -> None:
    a, done = servers.start("a"), threading.Event()
    until(lambda: a.has() == ALL, "everything")

    def say() -> None:
        keeper = a.keeper
        # Where a handler finds its thread that is interrupted in the middle of each of them.
        with keeper._keeper_state._lock, keeper._publishing:
            keeper.publish(load=1.0)
            keeper.drop(0)
            keeper.drain()
            keeper.undrain()
            keeper.stop(0)
        done.set()

    threading.Thread(target=say, daemon=True).start()
    assert done.wait(60) and a.keeper.ended(60)


def test_a_callback_that_ends_its_thread_holds_no_other_up() -> None:
    called_back: list[int] = []

    def gained(partition: int, epoch: int) -> None:
        called_back.append(partition)
        sys.exit()

    with LeaseKeeper("fleet", "a", quick_fleet(PARTITIONS), on_gained=gained):
        until(lambda: set(called_back) == ALL, "all callbacks")


def test_the_warning_comes_in_time_though_all_callbacks_hang(servers: Servers) -> None:
    gate, warned = threading.Event(), threading.Event()
    with LeaseKeeper(
        "fleet", "b", servers.tables, on_gained=lambda *_: gate.wait(60), on_danger=lambda left: left > 0 and warned.set()
    ) as keeper:
        until(lambda: set(keeper.owned()) == ALL, "everything")
        servers.tables.down = True
        assert warned.wait(30)
        servers.tables.down = False
        gate.set()


@pytest.mark.parametrize("which", ["on_gained", "on_lost"])
def test_a_callback_may_stop_the_keeper(servers: Servers, which: str) -> None:
    keepers: list[LeaseKeeper] = []

    def stops(*_: object) -> None:
        assert keepers[0].stop(60)

    keepers.append(LeaseKeeper("fleet", "b", servers.tables, **{which: stops}))  # type: ignore[arg-type]
    with keepers[0]:
        if which == "on_lost":
            until(lambda: keepers[0].owned(), "something to lose")
            servers.start("a")
        until(lambda: keepers[0].ended(0), "ended")


def test_a_callback_may_call_any_method_of_the_keeper(servers: Servers) -> None:
    keepers: list[LeaseKeeper] = []
    seen: list[int] = []

    def gained(partition: int, epoch: int) -> None:
        keeper = keepers[0]
        keeper.publish(load=float(partition))
        if partition == 3 and epoch == 1:
            keeper.drop(partition)
        if epoch == 1:
            keeper.drain()
            keeper.undrain()
        seen.append(partition if keeper.owns(partition) and keeper.wait(60) else -1)

    keepers.append(LeaseKeeper("fleet", "b", servers.tables, on_gained=gained))
    with keepers[0]:
        until(lambda: set(seen) >= ALL and (keepers[0].epoch(3) or 0) > 1, "all, and the dropped one again")


@pytest.mark.parametrize(
    ("verb", "what", "bad"),
    [
        ("publish", "load", float("nan")),
        ("publish", "load", float("inf")),
        ("publish", "capacity", -1),
        ("publish", "capacity", 2**40),
        ("drop", "partition", -1),
        ("drop", "partition", "5"),
        ("drop", "partition", 10**6),
    ],
)
def test_what_would_spoil_the_servers_row_is_refused(servers: Servers, verb: str, what: str, bad: object) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    with pytest.raises(ValueError, match=what):
        getattr(a.keeper, verb)(**{what: bad})
    beats = a.keeper.counts["beats"]
    until(lambda: a.keeper.counts["beats"] > beats + 2, "beats")
    until(lambda: a.has() == ALL, "everything still")


@pytest.mark.parametrize("options", [{"capacity": -1}, {"domain": "x" * 300}, {"domain": "\ud800"}])
def test_a_server_that_cannot_be_described_is_refused_at_once(servers: Servers, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"capacity|domain"):
        LeaseKeeper("fleet", "a", servers.tables, **options)


def test_a_single_server_may_have_every_partition_of_the_largest_fleet() -> None:
    with LeaseKeeper("fleet", "a", quick_fleet(10_000, CALM)) as keeper:
        until(lambda: len(keeper.owned()) > 300, "the first ones")
        for partition in range(10_000):
            keeper.drop(partition)
        until(lambda: keeper.counts["released"] > 100, "releases")
        assert keeper.counts["failed"] == 0


# -- what the machine does

FORKS = """
import os, sys
from tests.unit.leases.conftest import quick_fleet, until
from shared.leases.node.keeper import LeaseKeeper

keeper = LeaseKeeper("fleet", "a", quick_fleet(2), folder=sys.argv[1]).start()
until(lambda: len(keeper.owned()) == 2, "everything")
child = os.fork()
if child == 0:
    alone = keeper.owned() == {} and not keeper.owns(0) and keeper.ended(0) and keeper.stop()
    with open("/proc/self/maps"):
        locked = any(os.path.realpath(f"/proc/self/fd/{fd}").endswith(".lease") for fd in os.listdir("/proc/self/fd"))
    os._exit(0 if alone and not locked else 1)
failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(failed or (0 if len(keeper.owned()) == 2 and keeper.stop(60) else 2))
"""


def test_a_forked_child_owns_nothing_and_lets_go_of_the_lock(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)], cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 0


ENDS = """
from tests.unit.leases.conftest import quick_fleet, until
from shared.leases.node.keeper import LeaseKeeper

keeper = LeaseKeeper("fleet", "a", quick_fleet(2), on_gained=print).start()
until(lambda: len(keeper.owned()) == 2, "everything")
"""


def test_a_process_that_forgets_to_stop_ends_all_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, check=False, timeout=120, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_wall_clock_means_nothing(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    servers.tables = quick_fleet(PARTITIONS, CALM)
    a, b = servers.start("a"), servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")
    had, right, day = (a.has(), b.has()), SystemClock.now, 86_400_000
    for step in (day, -day, 30 * day, 0):
        monkeypatch.setattr(SystemClock, "now", lambda self, step=step: right(self) + step)
        then = a.keeper.counts["beats"], b.keeper.counts["scans"]
        until(lambda then=then: a.keeper.counts["beats"] > then[0] + 3, "beats")  # type: ignore[misc]
        until(lambda then=then: b.keeper.counts["scans"] > then[1] + 3, "looks")  # type: ignore[misc]
    assert (a.has(), b.has()) == had
    assert not [each for each in a.callbacks + b.callbacks if each[2] in ("expired", "fenced")]


def test_a_folder_that_cannot_keep_the_file_ends_the_keeper_with_the_reason(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with LeaseKeeper("fleet", "a", servers.tables, folder=tmp_path / "file") as keeper, pytest.raises(TocsinError, match="folder"):
        keeper.wait(60)


def test_a_full_disk_takes_the_proof_away_and_nothing_else(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_file.os, "fsync", full)
    a = servers.start("a", folder=tmp_path)
    until(lambda: a.has() == ALL, "everything")
    assert levels(caplog, "lease_proof_failed") == [logging.WARNING]


# -- what storage does


def every(error: Exception) -> dict[str, Exception]:
    return dict.fromkeys(("get", "query", "write"), error)


def test_storage_that_is_away_at_the_start_is_waited_for(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    servers.tables.down = True
    a = servers.start("a")
    until(lambda: a.keeper.counts["failed"] >= 3, "tries")
    assert not a.keeper.wait(0.01)
    servers.tables.down = False
    until(lambda: a.has() == ALL, "everything")
    assert levels(caplog, "lease_storage_away") == [logging.WARNING]


def test_rights_that_are_missing_are_reported_once_also_after_an_outage_and_come_back(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    servers.tables.odd = every(Unavailable("not reached"))
    a = servers.start("a")
    until(lambda: a.keeper.counts["failed"] >= 1, "the outage")
    servers.tables.odd = every(Rejected("AuthorizationPermissionMismatch (403)"))
    until(lambda: a.keeper.counts["failed"] >= 4, "refusals")
    assert levels(caplog, "lease_request_failed").count(logging.ERROR) == 1
    servers.tables.odd = {}
    until(lambda: a.has() == ALL, "everything")


def test_rights_to_write_only_are_reported_too(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    servers.tables.odd = {"query": Rejected("AuthorizationPermissionMismatch (403)")}
    a = servers.start("a")
    until(lambda: a.keeper.counts["failed"] >= 3, "refusals")
    assert levels(caplog, "lease_scan_failed").count(logging.ERROR) == 1
    servers.tables.odd = {}
    until(lambda: a.has() == ALL, "everything")
    servers.tables.odd = {"query": Rejected("AuthorizationPermissionMismatch (403)")}
    until(lambda: levels(caplog, "lease_scan_failed").count(logging.ERROR) == 2, "logged again")


def test_an_unexpected_exception_does_not_end_the_looking(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    servers.tables.odd = {"query": RuntimeError("odd")}
    until(lambda: logging.ERROR in levels(caplog, "lease_scanner_failed"), "logged")
    servers.tables.odd = {}
    b = servers.start("b")
    until(lambda: len(a.has()) == len(b.has()) == PARTITIONS // 2, "shares")


def test_tables_may_be_closed_as_soon_as_the_keeper_has_stopped(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    looking, gate = threading.Event(), threading.Event()

    class Closed(FaultyTables):
        def query(self, *args: Any, **options: Any) -> Any:
            if threading.current_thread().name.endswith("-scans"):
                looking.set()
                assert gate.wait(60)
                raise RuntimeError("the client has been closed")
            return super().query(*args, **options)

    keeper = LeaseKeeper("fleet", "closing", Closed(servers.tables.tables)).start()
    assert looking.wait(60) and keeper.stop(60)
    gate.set()
    until(lambda: "lease-closing-scans" not in {thread.name for thread in threading.enumerate()}, "the end of its last look")
    assert not levels(caplog, "lease_scanner_failed")


def test_when_no_answer_ever_comes_ownership_ends_by_itself(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    servers.tables.odd = {"get": Unavailable("no answer"), "query": Unavailable("no answer"), "write": OutcomeUnknown("no answer")}
    until(lambda: not a.has() and a.reasons() == {"expired"}, "expired")
    servers.tables.odd = {}
    until(lambda: a.has() == ALL and set(a.keeper.owned().values()) == {1}, "back, nobody had them")


def test_when_no_write_is_ever_answered_what_is_read_back_counts(servers: Servers) -> None:
    servers.tables = quick_fleet(PARTITIONS, CALM)
    a = servers.start("a")
    servers.tables.faults.extend(["lost"] * 10_000)
    until(lambda: a.has() == ALL, "everything")
    beats = a.keeper.counts["beats"]
    until(lambda: a.keeper.counts["beats"] > beats + 6, "beats")
    assert a.has() == ALL and a.reasons() == set()
    servers.tables.faults.clear()


def test_a_name_that_is_draining_is_still_in_use(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    a.may_stop.clear()
    a.keeper.drain()
    row = servers.tables.get
    until(lambda: (found := row(FLEETS, KEY, server_key("a"), timeout=1)) and found.props["state"] == "draining", "the row says so")
    twin = servers.start("a")
    with pytest.raises(NameInUse, match="'a'"):
        twin.keeper.wait(60)


def test_stopping_ends_in_time_though_a_callback_never_returns_and_storage_is_away(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    until(lambda: len(a.callbacks) == PARTITIONS, "callbacks")
    a.may_stop.clear()
    servers.tables.down = True
    stopped = threading.Event()
    threading.Thread(target=lambda: (a.keeper.stop(), stopped.set()), daemon=True).start()
    assert stopped.wait(60)
