"""The recording of the first delivery is made from a real run."""

from __future__ import annotations

from devhost.azurite import free_ports
from devhost.pictures.recording import record


def test_recording_has_the_call_its_answer_and_the_delivery() -> None:
    [port] = free_ports("127.0.0.1", 1)
    svg = record(port)
    assert f"localhost:{port}/api/dashboard" in svg and "tocsin dev" in svg
    assert "scheduled" in svg and "delivered 204 hello to default" in svg
    assert "whsec_…" in svg
