"""Answers to probes, and the format of figures."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from shared.maintenance.agent.observability.health import FAMILIES, AgentFigures, AgentHealth, HealthServer

WELL = AgentHealth(True, (), True, {"node": "n1", "events": []})


@dataclass
class Served:
    health: AgentHealth = WELL
    figures: AgentFigures = field(default_factory=AgentFigures)
    port: int = 0

    def get(self, path: str, method: str = "GET") -> httpx.Response:
        return httpx.request(method, f"http://127.0.0.1:{self.port}{path}", timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    source = Served()
    server = HealthServer("127.0.0.1", 0, lambda: source.health, lambda: source.figures.text())
    server.start()
    source.port = server.port
    yield source
    server.close()


@pytest.mark.parametrize(
    ("health", "live", "ready", "maintenance"),
    [
        (WELL, 200, 200, 200),
        (AgentHealth(False, (), True), 503, 503, 200),
        (AgentHealth(True, ("no document for 61 s",), True), 200, 503, 200),
        (AgentHealth(True, (), False), 200, 200, 503),
    ],
)
def test_each_probe_answers_its_own_question(served: Served, health: AgentHealth, live: int, ready: int, maintenance: int) -> None:
    served.health = health
    assert [served.get(path).status_code for path in ("/live", "/ready", "/maintenance?x=1")] == [live, ready, maintenance]
    assert served.get("/ready").json() == {"ready": ready == 200, "reasons": list(health.reasons)}


def test_maintenance_shows_the_node_and_its_events(served: Served) -> None:
    served.health = WELL
    answer = served.get("/maintenance")
    assert answer.json() == {"in_service": True, "node": "n1", "events": []} and answer.headers["cache-control"] == "no-store"
    assert served.get("/maintenance", "HEAD").content == b""


def test_other_paths_and_methods_are_refused(served: Served) -> None:
    assert served.get("/other").status_code == 404 and "/maintenance" in served.get("/other").json()["detail"]
    assert served.get("/live", "POST").status_code == 501


def test_figures_are_served_as_prometheus_text(served: Served) -> None:
    served.figures.add("tocsin_agent_hook_runs_total", hook="prepare", outcome="done")
    answer = served.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'tocsin_agent_hook_runs_total{hook="prepare",outcome="done"} 1\n' in answer.text


def test_caller_that_hangs_up_does_no_harm(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", served.port)) as caller:
                caller.sendall(b"GET /live HTTP/1.1\r\n\r\n")
        assert served.get("/live").status_code == 200
    assert [record for record in caplog.records if record.name.startswith("shared")] == []


def test_port_that_is_taken_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        HealthServer("127.0.0.1", taken.getsockname()[1], lambda: WELL, str)


def test_figures_add_up_by_label_and_gauges_are_replaced() -> None:
    figures = AgentFigures()
    figures.add("tocsin_agent_polls_total", outcome="good")
    figures.add("tocsin_agent_polls_total", 2, outcome="good")
    figures.put("tocsin_agent_node_disabled", 1)
    figures.replace("tocsin_agent_events", "phase", {"WAITING": 2, "DONE": 1})
    figures.replace("tocsin_agent_events", "phase", {"DONE": 3})
    figures.add("tocsin_agent_warnings_total", action='a"b\\c\nd')
    text = figures.text()
    assert figures.value("tocsin_agent_polls_total", outcome="good") == 3
    assert 'tocsin_agent_events{phase="DONE"} 3\n' in text and "WAITING" not in text
    assert 'tocsin_agent_warnings_total{action="a\\"b\\\\c\\nd"} 1\n' in text and "tocsin_agent_node_disabled 1\n" in text


def test_every_figure_is_explained() -> None:
    text = AgentFigures().text()
    for name, (kind, about) in FAMILIES.items():
        assert f"# HELP {name} {about}\n# TYPE {name} {kind}\n" in text
        assert (kind == "counter") == name.endswith("_total")
