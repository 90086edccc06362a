"""An agent that reports to an app: it asks before it approves, obeys holds and leases, and works on alone while the app is away."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.core.clock import SystemClock, to_text
from shared.extras.emulator import Emulator
from tests.certificates import make_certificate

from .agents import Agent, until
from .conftest import MakeAgent
from .fakeapp import KEY, FakeApp
from .test_agent import update


@pytest.fixture
async def app() -> AsyncIterator[FakeApp]:
    it = FakeApp()
    await it.start()
    yield it
    await it.close()


def joined(make: MakeAgent, app: FakeApp, *, require_central: bool = False, patience: float = 60.0) -> Agent:
    """patience: seconds for which an app that does not answer is waited for; a slow machine must not take it for away."""
    agent = make()
    (agent.folder / "key").write_text(KEY)
    (agent.folder / "key").chmod(0o600)
    app_settings = {"url": app.url, "fleet": "search", "key_file": "key", "require_central": require_central, "patience_seconds": patience}
    agent.settings["app"] = app_settings
    agent.start()
    return agent


async def test_app_learns_of_each_step_and_is_asked_before_the_approval(imds: Emulator, make: MakeAgent, app: FakeApp) -> None:
    agent = joined(make, app)
    imds.do(update())
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    # The app knows that the node is prepared, and did not object.
    assert "PREPARED" in app.phases()
    await until(lambda: app.phases()[-1] == "STARTED", "the start is reported", [agent])
    imds.do({"complete": "update"})
    await until(lambda: app.phases()[-1] == "DONE", "the end is reported", [agent])
    seqs = [report["seq"] for report in app.reports]
    assert seqs == sorted(set(seqs)) and app.reports[-1]["events"][0]["outcome"] == "completed"
    assert {(report["node"], report["vm"], report["fault_domain"]) for report in app.reports} == {("n1", "n1", "0")}
    phases = list(dict.fromkeys(app.phases()))
    assert [phase for phase in ("PREPARING", "PREPARED", "APPROVED", "STARTED", "RESTORING", "DONE") if phase in phases] == [
        phase for phase in phases if phase != "WAITING"
    ]


async def test_hold_of_the_app_is_obeyed_until_it_is_lifted(imds: Emulator, make: MakeAgent, app: FakeApp) -> None:
    imds.do(update())
    event_id = imds.event("update").shown.id.lower()
    app.holds = {event_id: "another domain is down"}
    agent = joined(make, app)
    await until(lambda: any("another domain is down" in line["text"] for line in agent.said("agent_approval_held")), "held", [agent])
    assert agent.phases() == ["PREPARED"] and imds.event("update").approved_at is None
    app.holds = {}
    await imds.until(lambda world: imds.event("update").approved_at is not None)


async def test_leased_approval_of_another_machines_event_is_posted_and_its_result_reported(
    imds: Emulator, make: MakeAgent, app: FakeApp
) -> None:
    imds.do({"event": {"name": "others", "vms": ["n2"], "type": "Freeze", "duration": 9, "notice": "PT20M", "settles": "PT1H"}})
    event_id = imds.event("others").shown.id.lower()
    agent = joined(make, app)
    await until(lambda: "FOREIGN" in app.phases(), "seen", [agent])
    assert imds.event("others").approved_at is None
    expires = to_text(SystemClock().now() + 600_000)
    app.approvals = [{"id": "a1", "event_id": event_id, "lease_ms": 60_000, "expires": expires}]
    await imds.until(lambda world: imds.event("others").approved_at is not None)
    await until(lambda: app.results, "the result is reported", [agent])
    assert app.results[0] == ("a1", {"node": "n1", "outcome": "posted", "http_status": 200}) and agent.did() == []


async def test_node_approves_by_itself_while_the_app_is_away(imds: Emulator, make: MakeAgent, app: FakeApp) -> None:
    app.status = 503
    agent = joined(make, app, patience=0.5)
    imds.do(update())
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    assert agent.did() == ["prepare"]


async def test_node_that_must_ask_holds_while_the_app_is_away_and_reports_all_of_it_later(
    imds: Emulator, make: MakeAgent, app: FakeApp
) -> None:
    app.status = 503
    agent = joined(make, app, require_central=True, patience=0.5)
    imds.do(update())
    await until(lambda: agent.phases() == ["PREPARED"] and agent.said("agent_approval_held"), "holds", [agent])
    await until(lambda: (agent.state / "reports.jsonl").exists(), "kept", [agent])
    # Unsent reports survive a restart of the agent, and are sent first when the app is back.
    agent.kill()
    assert imds.event("update").approved_at is None
    app.status = 200
    agent.start()
    await until(lambda: "PREPARING" in app.phases(), "the first report", [agent])
    await imds.until(lambda world: imds.event("update").approved_at is not None)
    await until(lambda: not (agent.state / "reports.jsonl").exists(), "all reports are sent", [agent])
    phases = list(dict.fromkeys(app.phases()))
    assert phases.index("PREPARING") < phases.index("PREPARED")


async def test_rehearsal_runs_the_hooks_and_is_never_posted(imds: Emulator, make: MakeAgent, app: FakeApp) -> None:
    app.rehearse = 5.0
    agent = joined(make, app)
    await until(lambda: agent.did() == ["prepare", "restore", "verify"], "rehearsed", [agent])
    assert [line.kind for line in imds.history if line.kind in ("approved", "refused")] == []


class Tunnels:
    """A proxy that opens tunnels to one port of this machine, whatever is asked for. heads: the requests that it got."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            writer.close()
            back.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(65536):
        writer.write(part)
    writer.write_eof() if writer.can_write_eof() else None


async def test_the_app_is_reached_through_the_proxy_of_the_environment_and_the_metadata_service_is_not(
    imds: Emulator, make: MakeAgent, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path, "app.example")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    app, agent = FakeApp(), make()
    await app.start(tls)
    proxy = Tunnels(app.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (agent.folder / "key").write_text(KEY)
    (agent.folder / "key").chmod(0o600)
    agent.settings["app"] = {"url": "https://app.example", "fleet": "search", "key_file": "key", "patience_seconds": 60}
    address = f"http://node:proxy-password@127.0.0.1:{port}"
    environment = {"HTTPS_PROXY": address, "HTTP_PROXY": address, "http_proxy": address, "NO_PROXY": "", "SSL_CERT_FILE": str(certificate)}
    try:
        agent.start(environment=environment)
        imds.do(update())
        await imds.until(lambda world: imds.event("update").approved_at is not None)
        assert "PREPARED" in app.phases()
        assert {head.split("\r\n")[0] for head in proxy.heads} == {"CONNECT app.example:443 HTTP/1.1"}
        assert all("Proxy-Authorization: Basic" in head and KEY not in head for head in proxy.heads)
        assert agent.end() == 0
        assert "proxy-password" not in str(agent.lines)
    finally:
        agent.close()
        server.close()
        await app.close()
