"""Real replica processes on the real app: killed, promoted, cut off, with the app restarted; at no instant two take a checkpoint.

A turn that was handed out to a process that died, or that became primary, is waited out, which takes a minute: two fleets meet their faults
in the same one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from devhost.azurite import ROOT, Azurite
from tests import waiting
from tests.integration.leases.proxy import Proxy
from tests.integration.scheduler.conftest import Host
from tests.integration.scheduler.receiver import Receiver
from tests.logs import watch
from tests.waiting import wait_until

KEY = "local-demo-key"
BUSY = 180.0
"""Seconds allowed for what should take a few, and beyond a turn's time."""
CHECKPOINTS = {"timeout": {"initial": "PT1M", "min": "PT1M", "max": "PT1M"}, "silence": "PT5S"}


class Line(NamedTuple):
    """A line that a member wrote."""

    at: float
    node: str
    pid: int
    what: str
    about: tuple[str, ...]


class Fleet:
    """A fleet, its member processes, and what they wrote."""

    def __init__(self, name: str, host: Host, folder: Path) -> None:
        self.name, self.host, self.folder = name, host, folder
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths: dict[int, float] = {}
        self.latest: list[int] = []
        # Kept: a new client costs more than the call.
        self.client = httpx.Client(headers={"authorization": f"Bearer {KEY}"}, timeout=180, trust_env=False)
        answer = self.call("PUT", "", {"partitions": 1, "checkpoints": CHECKPOINTS})
        assert answer.status_code == 201, answer.text

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        url = f"{self.host.url}/api/v1/fleets/{self.name}{path}"
        return self.client.request(method, url, json=body)

    def lead(self, node: str, term: int) -> None:
        fresh = self.folder / f"{self.name}.fresh"
        fresh.write_text(f"{node} {term}")
        fresh.replace(self.folder / f"{self.name}.primary")

    @property
    def hold(self) -> Path:
        return self.folder / f"{self.name}.hold"

    def start(self, node: str, through: Proxy | None = None) -> None:
        url = self.host.url if through is None else f"http://127.0.0.1:{through.port}"
        environment = {**os.environ, "TOCSIN_URL": url, "TOCSIN_KEY": KEY, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.integration.checkpoints.member", self.name, node, str(self.folder)]
        with watch(self.folder / f"{self.name}-{node}.txt").open("ab") as output:
            self.members[node] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    def kill(self, node: str) -> None:
        """SIGKILL. From its end on it takes nothing."""
        process = self.members.pop(node)
        process.kill()
        process.wait()
        self.deaths[process.pid] = time.monotonic()

    def close(self) -> None:
        for node in list(self.members):
            self.kill(node)
        self.client.close()

    def lines(self) -> list[Line]:
        path = self.folder / f"{self.name}.log"
        text = path.read_text() if path.exists() else ""
        split = [line.split() for line in text.splitlines()]
        return [Line(float(at), node, int(pid), what, tuple(about)) for at, node, pid, what, *about in split]

    def said(self, what: str, since: float = 0.0) -> list[Line]:
        return [line for line in self.lines() if line.what == what and line.at >= since]

    def published(self, since: float = 0.0) -> Counter[str]:
        return Counter(line.node for line in self.said("published", since))

    def taking(self) -> Line | None:
        """Return the line of the member that takes a checkpoint now."""
        begun = self.said("begin")
        ended = {(line.pid, line.about) for line in self.said("end")}
        return next((line for line in reversed(begun) if (line.pid, line.about) not in ended and line.pid not in self.deaths), None)

    def look(self) -> None:
        """The latest checkpoint as the app says now."""
        with contextlib.suppress(httpx.TransportError):
            answer = self.call("GET", "/checkpoints/latest")
            if answer.status_code == 200:
                self.latest.append(answer.json()["sequence"])

    def check(self) -> None:
        """The two invariants of the job, and that the latest checkpoint never went back."""
        lines = self.lines()
        bodies = []
        for line in lines:
            if line.what == "begin":
                ends = [each.at for each in lines if (each.what, each.pid, each.about) == ("end", line.pid, line.about)]
                bodies.append((line.at, ends[0] if ends else self.deaths[line.pid], line))
        bodies.sort()
        for (_, end, one), (begin, _, other) in itertools.pairwise(bodies):
            assert end <= begin, f"two at once: {one} until {end}, {other}"
        epochs = [int(line.about[0]) for _, _, line in bodies]
        assert epochs == sorted(epochs)
        for line in lines:
            if line.what == "primary":
                ends = [each.at for each in lines if (each.what, each.pid) == ("secondary", line.pid) and each.at > line.at]
                until = min(ends, default=float("inf"))
                assert not [body for body in bodies if body[2].pid == line.pid and body[0] < until and body[1] > line.at], line
        assert self.latest == sorted(self.latest) and self.latest
        for path in self.folder.glob(f"{self.name}-*.txt"):
            assert "Traceback" not in path.read_text(), path.read_text()


def until[T](look: Callable[[], T], what: str, *fleets: Fleet, seconds: float = BUSY) -> T:
    def looked() -> T:
        found = look()
        if not found:
            for fleet in fleets:
                fleet.look()
        return found

    return wait_until(looked, what, seconds, pause=0.25)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Azurite(memory=True) as azurite, contextlib.ExitStack() as stack:
        receiver = Receiver().start()
        stack.callback(receiver.stop)
        running = Host(tmp_path_factory.mktemp("host"), azurite.connection_string, receiver).start()
        stack.callback(running.end)
        yield running


def test_one_at_a_time_through_deaths_promotions_lost_answers_and_a_restart_of_the_app(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "members"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        bad = stack.enter_context(Proxy(int(host.url.rpartition(":")[2]), seed=7))
        bad.drop = 0.2
        one, two = Fleet("one", host, folder), Fleet("two", host, folder)
        stack.callback(one.close)
        stack.callback(two.close)
        one.lead("a", 1)
        two.lead("p", 1)
        for node in "abcde":
            one.start(node, bad if node in "cd" else None)
        for node in "pqr":
            two.start(node)
        until(lambda: len(one.published()) > 1 and two.published(), "turns", one, two)

        # An operator takes a turn back: its holder ends, and the others need not wait.
        two.hold.touch()
        held = until(two.taking, "a turn that lasts", two)
        answer = two.call("POST", f"/turns/{held.about[0]}/revoke", {"note": "disk is needed"})
        assert answer.status_code == 202, answer.text
        until(lambda: [line for line in two.said("lost") if line.about == (held.about[0], "revoked")], "its end", two)

        # In one fleet the holder of a turn is killed and the primary with it; in the other, the holder becomes primary.
        one.hold.touch()
        killed = until(one.taking, "a turn that lasts", one)
        promoted = until(two.taking, "a turn that lasts", two)
        for node in ("a", killed.node):
            one.kill(node)
        two.lead(promoted.node, 2)
        until(lambda: two.said("primary", promoted.at), "the new primary", two)
        assert [line.about for line in two.said("lost", promoted.at)] == [(promoted.about[0], "promoted")]
        rest = sorted(set("bcde") - {killed.node})
        one.lead(rest[0], 2)
        until(lambda: one.said("primary", killed.at), "the new primary", one)
        one.start(killed.node)
        one.start("a")
        host.kill()
        host.start()
        for fleet in (one, two):
            fleet.hold.unlink()

        since = time.monotonic()
        others = {*rest[1:], killed.node, "a"}
        until(lambda: set(one.published(since)) >= others, "a turn of each secondary", one, two, seconds=60 + BUSY)
        assert bad.dropped
        until(lambda: set(two.published(since)) >= {*"pqr"} - {promoted.node}, "a turn of each secondary", one, two, seconds=60 + BUSY)
        waited = [(one, killed), (two, promoted)]
        for fleet, line in waited:
            fleet.look()
            turns = {turn["epoch"]: turn for turn in fleet.call("GET", "/turns?limit=1000").json()["items"]}
            turn = turns[int(line.about[0])]
            assert (turn["state"], turn["holder"], turn["sequence"]) == ("timed-out", line.node, None), turn
            assert turn["timeout_ms"] == 60_000
        one.close()
        two.close()
    for fleet in (one, two):
        fleet.check()


EXAMPLE = ROOT / "docs" / "examples" / "checkpoints" / "replica.py"


def test_example_takes_its_turn_and_is_the_pages(host: Host, tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    assert len([line for line in text.splitlines() if line]) <= 15 and text in (ROOT / "docs" / "how-to" / "checkpoints.md").read_text()
    (tmp_path / "replica.py").write_text(re.sub(r"\btocsin\b", "shared", text))
    environment = {**os.environ, "TOCSIN_URL": host.url, "TOCSIN_KEY": KEY, "PYTHONPATH": str(ROOT)}

    def run(node: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "replica.py", node]
        return waiting.run(command, cwd=tmp_path, env=environment)

    done = run("s7")
    assert done.returncode == 1 and done.stderr.count("Traceback") == done.stderr.count("there is no fleet 'search'") == 1, done.stderr
    fleet = Fleet("search", host, tmp_path)
    for node in ("s7", "s8"):
        done = run(node)
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["taking", "published"], done.stdout
        waits, granted, published = done.stderr.splitlines()
        assert waits.startswith(f"{node} waits ") and waits.endswith(" search")
        assert f"{node} has turn " in granted and f"of {node} is published" in published
    assert fleet.call("GET", "/checkpoints/latest").json()["location"] == "/backup/s7-120"
    fleet.close()
