"""Sending lines: batches to a collector, one datagram a line, bounds, drops, and the end of the process."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.core.http_exchange import HttpReply, TransportFailure
from shared.core.node_logs import otlp
from shared.core.node_logs.datagrams import DatagramHandler, journald_datagram
from shared.core.node_logs.otlp import Collector, OtlpHandler, SendWaits, SentLines, judge
from shared.core.node_logs.outputs import LogOutputs, export_logs

from .collector import JsonCollector
from .test_formats import parsed

SECRET = "s3cret-of-the-collector"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("test.node_logs")
    made.setLevel(logging.INFO)
    made.propagate = False
    yield made
    for handler in made.handlers[:]:
        made.removeHandler(handler)


def handler_of(ask: Callable[..., Any], **more: Any) -> OtlpHandler:
    return OtlpHandler(Collector("http://collector", {}, {}), SentLines({"node": "n1"}), ask=ask, waits=SendWaits(0.0, 0.0), **more)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, "", 0, text, (), None)


def test_lines_arrive_at_a_collector_with_node_fleet_and_event_and_without_secrets(logger: logging.Logger) -> None:
    with JsonCollector() as collector:
        outputs = LogOutputs(f"{collector.url}/v1/logs", {"api-key": SECRET}, {"env": "test"})
        with export_logs(node="n1", fleet="db", tenant="demo", service="tocsin-agent", outputs=outputs, logger=logger) as export:
            logger.info("prepared with %s", SECRET, extra={"action": "agent_prepared", "event_id": "e1", "fields": {"ms": 7}})
            logger.debug("not this one")
    [line] = collector.lines
    assert line.pop("at_ns") > 1_700_000_000_000_000_000
    assert line == {
        "logger": "test.node_logs",
        "text": "prepared with ***",
        "severity": 9,
        "action": "agent_prepared",
        "event_id": "e1",
        "node": "n1",
        "fleet": "db",
        "tenant": "demo",
        "ms": 7,
    }
    assert collector.resources[0] | {"host.name": ""} == {
        "service.name": "tocsin-agent",
        "service.instance.id": "n1",
        "host.name": "",
        "env": "test",
    }
    [request] = collector.requests
    assert (request["path"], request["api-key"], request["content-type"]) == ("/v1/logs", SECRET, "application/json")
    assert export.counts == {"sent": 1}


def test_a_batch_that_is_not_accepted_now_is_sent_again_and_nothing_is_lost(logger: logging.Logger) -> None:
    with JsonCollector() as collector:
        collector.answers = [503, 429]
        handler = OtlpHandler(Collector(f"{collector.url}/v1/logs", {}, {}), SentLines({}), waits=SendWaits(0.0, 0.0))
        logger.addHandler(handler)
        logger.info("one")
        collector.wait_for(lambda: any(line["text"] == "one" for line in collector.lines))
        logger.info("two")
        collector.wait_for(lambda: any(line["text"] == "two" for line in collector.lines))
        handler.close()
    assert [line["text"] for line in collector.lines].count("one") == 1
    assert handler.counts["dropped"] == handler.counts["refused"] == 0


def test_a_batch_that_is_refused_for_good_stops_no_later_one(logger: logging.Logger) -> None:
    with JsonCollector() as collector:
        collector.answers = [400]
        handler = OtlpHandler(Collector(f"{collector.url}/v1/logs", {}, {}), SentLines({}), waits=SendWaits(0.0, 0.0))
        handler.emit(record("bad"))
        collector.wait_for(lambda: collector.requests)
        handler.emit(record("good"))
        collector.wait_for(lambda: collector.lines)
        handler.close()
    assert [line["text"] for line in collector.lines] == ["good"] and +handler.counts == {"sent": 1, "refused": 1}


def test_queue_is_bounded_and_the_oldest_lines_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_LINES", 10)
    asked, go, bodies = threading.Event(), threading.Event(), []

    def ask(*_: Any, body: bytes, **__: Any) -> HttpReply:
        bodies.append(body)
        asked.set()
        assert go.wait(60)
        return HttpReply(200, b"{}")

    handler = handler_of(ask)
    handler.emit(record("first"))
    assert asked.wait(60)
    for number in range(50):
        handler.emit(record(f"line {number} "))
    assert handler.counts["dropped"] == 40
    go.set()
    handler.close(60)
    assert +handler.counts == {"dropped": 40, "sent": 11} and b"line 39 " not in b"".join(bodies) and b"line 49 " in b"".join(bodies)


def test_queue_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_BYTES", 3000)
    asked, go = threading.Event(), threading.Event()

    def ask(*_: Any, **__: Any) -> HttpReply:
        asked.set()
        assert go.wait(60)
        return HttpReply(200, b"{}")

    handler = handler_of(ask)
    handler.emit(record("first"))
    assert asked.wait(60)
    for _ in range(9):
        handler.emit(record("x" * 1000))
    assert handler.counts["dropped"] == 7
    go.set()
    handler.close(60)


def test_logging_never_waits_for_a_collector_and_the_end_of_the_process_waits_within_its_bound() -> None:
    stuck = threading.Event()

    def ask(*_: Any, timeout: float, **__: Any) -> TransportFailure:
        assert timeout <= otlp.REQUEST
        stuck.wait(60)
        return TransportFailure("no answer")

    handler = handler_of(ask)
    handler.emit(record("one"))
    handler.emit(record("two"))
    handler.close(0.05)
    handler.emit(record("too late"))
    assert handler.counts["dropped"] == 1
    stuck.set()


def test_pauses_grow_with_jitter_and_follow_the_collector() -> None:
    pauses: list[float] = []

    class Hasty(OtlpHandler):
        def _pause(self, seconds: float) -> None:
            pauses.append(seconds)

    answers = [TransportFailure("away")] * 8 + [HttpReply(503, b"", {"retry-after": "120"}), HttpReply(200, b"")]
    handler = Hasty(
        Collector("http://collector", {}, {}), SentLines({}), ask=lambda *_, **__: answers.pop(0), chance=lambda: 1.0, waits=SendWaits(0.0)
    )
    handler.emit(record("one"))
    handler.close(60)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 120] and +handler.counts == {"sent": 1}


def test_what_answers_mean() -> None:
    partly = HttpReply(200, b'{"partialSuccess": {"rejectedLogRecords": "3", "errorMessage": "too old"}}')
    assert judge(partly, 10) == ("sent", 3, 0.0, "") and judge(HttpReply(200, b"not JSON"), 10).refused == 0
    assert judge(HttpReply(401, b""), 10)[:2] == ("refused", 10)
    assert judge(HttpReply(503, b"", {"retry-after": "Wed, 21 Oct"}), 1).pause == 0
    assert judge(HttpReply(503, b"", {"retry-after": "9999999"}), 1).pause == otlp.LONGEST_ASKED


def test_a_forked_child_sends_no_line_of_its_parent() -> None:
    bodies: list[bytes] = []
    go = threading.Event()

    def ask(*_: Any, body: bytes, **__: Any) -> HttpReply:
        assert go.wait(60)
        bodies.append(body)
        return HttpReply(200, b"{}")

    handler = handler_of(ask)
    handler.emit(record("of the parent"))
    for after_fork in (otlp._forked,):
        after_fork()
    go.set()
    handler.emit(record("of the child"))
    handler.close(60)
    assert any(b"of the child" in body and b"of the parent" not in body for body in bodies)


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.settimeout(60)
        yield path, server


def test_journald_gets_one_datagram_a_line_and_long_lines_are_shortened(
    journald: tuple[str, socket.socket], logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, server = journald
    with export_logs(node="n1", fleet="db", service="tocsin-agent", outputs=LogOutputs(journald=path), logger=logger) as export:
        logger.warning("late", extra={"action": "agent_event_late", "event_id": "e1"})
        found = parsed(server.recv(300_000))
        assert (found["MESSAGE"], found["TOCSIN_EVENT_ID"], found["TOCSIN_NODE"], found["PRIORITY"]) == (b"late", b"e1", b"n1", b"4")
        fields = {f"f{number}": "x" * 16_000 for number in range(30)}
        logger.info("long", extra={"action": "a", "event_id": "e1", "fields": fields})
        found = parsed(server.recv(300_000))
        assert found["MESSAGE"] == b"long" and found["TOCSIN_EVENT_ID"] == b"e1" and len(found["TOCSIN_F0"]) == 1024
    assert export.counts == {"sent": 2}


def test_lines_that_journald_does_not_take_go_to_the_fallback_and_logging_does_not_wait(
    journald: tuple[str, socket.socket], logger: logging.Logger
) -> None:
    path, _ = journald
    kept: list[str] = []
    fallback = logging.Handler()
    fallback.emit = lambda line: kept.append(line.getMessage())  # type: ignore[method-assign]
    handler = DatagramHandler("journald", path, lambda line: journald_datagram(line, "x"), {}, fallback=fallback)
    logger.addHandler(handler)
    sent = 0
    # Nobody reads: the socket's room ends.
    while not kept:
        logger.info("line %d", sent)
        sent += 1
    assert kept == [f"line {sent - 1}"] and handler.counts["dropped"] == 1
    os.unlink(path)
    logger.info("gone")
    assert kept[1:] == ["gone"] and handler.counts["dropped"] == 2
    handler.close()
