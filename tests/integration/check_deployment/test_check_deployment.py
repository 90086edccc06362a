"""`tocsin check-deployment` as a process, against real hosts with and without planted faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.storage.queue import AccountSasPermissions, QueueServiceClient, ResourceTypes, generate_account_sas

from devhost.azurite import ACCOUNT, KEY, ROOT, Azurite
from shared.core.version import version
from shared.scheduler.wakes.service import SWEEP_ROW
from shared.storage.azure.tables import AzureTables
from shared.storage.names import PK_TICKS, SWEEPS
from shared.storage.ports import ANY, Merge, RowQuery, Upsert
from tests import waiting
from tests.integration.scheduler.conftest import ADMIN_KEY, Host
from tests.integration.scheduler.receiver import Receiver

PLANTED = str(Path(__file__).with_name("planted"))
COMMAND = [sys.executable, "-m", "shared.cli", "check-deployment", "--quick", "--json"]


class System:
    """A host with its storage."""

    def __init__(self, host: Host, azurite: Azurite) -> None:
        self.host, self.azurite = host, azurite
        self.admin = httpx.Client(
            base_url=f"{host.url}/api/v1/", headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60, trust_env=False
        )

    @property
    def environment(self) -> dict[str, str]:
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return {**keep, "TOCSIN_URL": self.host.url, "TOCSIN_KEY": ADMIN_KEY, "TOCSIN_PROFILES": "/nonexistent"}

    def check(self, *arguments: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]], str]:
        """Run the command; return its exit code, its lines by name, and what it said beside them."""
        done = waiting.run([*COMMAND, *arguments], cwd=ROOT, env={**self.environment, **environment})
        assert "Traceback" not in done.stderr, done.stderr
        lines = json.loads(done.stdout)["checks"] if done.stdout else []
        return done.returncode, {line["check"]: line for line in lines}, done.stderr

    def started(self) -> subprocess.Popen[str]:
        """Start the command, and return it once it waits for events."""
        process = subprocess.Popen(
            COMMAND, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_default_signals
        )
        assert process.stderr is not None
        for line in process.stderr:
            if "silence" in line:
                break
        assert self.tenants() and self.queues()
        return process

    def tenants(self) -> list[str]:
        """Return the tenants that runs have created."""
        return [each["name"] for each in self.admin.get("tenants").json()["items"] if each["name"].startswith("tocsincheck-")]

    def queues(self) -> list[str]:
        """Return the queues that runs have created."""
        with QueueServiceClient.from_connection_string(self.azurite.connection_string) as service:
            return [each.name for each in service.list_queues(name_starts_with="tocsincheck-")]

    def queue_address(self) -> str:
        """Return the address of the account's queues."""
        address = self.admin.get("storage").json()["queues"]
        assert isinstance(address, str)
        return address

    def ready(self) -> Any:
        """Return the document of readyz."""
        return self.admin.get(f"{self.host.url}/api/readyz").json()

    def run_timer(self) -> int:
        """Let the host run its timer function now; return the status of its answer."""
        return self.admin.post(f"{self.host.url}/admin/functions/sweep", headers={"x-functions-key": "master"}).status_code

    def close(self) -> None:
        self.admin.close()


def _default_signals() -> None:
    # A shell that started the tests in the background has its children ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def running(folder: Path, **environment: str) -> Iterator[System]:
    """A host of its own on storage of its own."""
    receiver = Receiver().start()
    with Azurite(memory=True) as azurite:
        host = Host(folder, azurite.connection_string, receiver, DEVHOST_MASTER_KEY="master", **environment)
        system = System(host, azurite)
        try:
            host.start()
            yield system
        finally:
            system.close()
            host.end()
            receiver.stop()


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    with running(tmp_path_factory.mktemp("good")) as found:
        # Its first tick may be a minute away.
        assert found.run_timer() == 202
        waiting.wait_until(lambda: found.ready()["clocks"]["timer_age_s"] is not None, "the first tick", pause=0.2)
        yield found


def bad(lines: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, line in lines.items() if line["result"] == "bad"}


def timed(lines: dict[str, dict[str, Any]]) -> set[str]:
    """Return the names of the lines that judge lateness, which is the machine's too."""
    return {name for name, line in lines.items() if "late_ms" in line}


def test_a_good_host_has_no_fault_and_nothing_is_left(system: System) -> None:
    code, lines, _ = system.check("--expect", version())
    assert code == bool(bad(lines)), lines
    assert {line["result"] for name, line in lines.items() if name not in timed(lines)} == {"ok"}, lines
    assert len(lines["batch of 20"]["late_ms"]) == 20 and lines["once each"]["arrived"] == 31
    assert lines["versions"]["service"] == lines["versions"]["senders"] == [version()]
    assert lines["first after 2 s idle"]["uptime_ms"] > 0
    assert (system.tenants(), system.queues()) == ([], [])


def test_the_long_measures_show_processes_and_ticks(system: System) -> None:
    code, lines, _ = system.check("--flex")
    assert code == bool(bad(lines)) and bad(lines) <= timed(lines), lines
    assert lines["crowd of 20"]["processes"] == 1 and lines["from zero"]["arrived"] == 1
    assert lines["1 s after the last event"]["events"] == lines["2 s after the last event"]["events"] == 1
    assert lines["stuck messages"]["stuck"] == 0
    assert (system.tenants(), system.queues()) == ([], [])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_removes_its_tenant_and_its_queue(system: System, number: int, code: int) -> None:
    process = system.started()
    process.send_signal(number)
    out, err = waiting.all_output(process, "the command")
    assert process.returncode == code and out == "" and "Traceback" not in err and "not removed" not in err, err
    assert (system.tenants(), system.queues()) == ([], [])


def test_what_a_killed_run_has_left_is_removed_by_a_later_one(system: System) -> None:
    process = system.started()
    process.kill()
    waiting.all_output(process, "the command")
    [killed] = system.tenants()
    old = f"tocsincheck-{int(time.time()) - 10_000}-"
    with QueueServiceClient.from_connection_string(system.azurite.connection_string) as service:
        for name, channel in (("0badcafe", "queue"), ("deadbeef", "http")):
            spec = {"type": "queue", "queue": old + name} if channel == "queue" else {"type": "http", "url": "http://127.0.0.1:9/"}
            service.create_queue(old + name)
            assert system.admin.put(f"tenants/{old}{name}", json={}).status_code == 201
            assert system.admin.put(f"tenants/{old}{name}/channels/check", json=spec).status_code == 201
        assert system.check()[0] == 0
        # The run that was killed may still go on, as far as a later one knows; and the other tenant is not one of this command's.
        assert sorted(system.tenants()) == sorted([killed, f"{old}deadbeef"])
        assert sorted(system.queues()) == sorted([killed, f"{old}deadbeef"])
        for name in (killed, f"{old}deadbeef"):
            assert system.admin.delete(f"tenants/{name}").is_success
            service.delete_queue(name)


def signature(permission: str) -> str:
    return generate_account_sas(
        ACCOUNT,
        KEY,
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions.from_string(permission),
        datetime.now(UTC) + timedelta(hours=1),
    )


def test_a_missing_role_is_found_before_anything_is_created(system: System) -> None:
    code, lines, _ = system.check("--queue-url", f"{system.queue_address()}?{signature('r')}")
    assert (code, bad(lines)) == (1, {"queue"}) and lines["queue"]["status"] == 403, lines
    assert "sig=" not in json.dumps(lines) and "due now" not in lines
    assert (system.tenants(), system.queues()) == ([], [])


def test_an_existing_queue_with_a_signature_is_enough_and_stays(system: System) -> None:
    with QueueServiceClient.from_connection_string(system.azurite.connection_string) as service:
        service.create_queue("prepared")
        # To read, process and delete messages, and no more.
        address = f"{system.queue_address()}/prepared?{signature('rpd')}"
        code, lines, _ = system.check(TOCSIN_QUEUE_URL=address)
        assert (code, bad(lines)) == (0, set()), lines
        assert "prepared" in [each.name for each in service.list_queues()] and system.tenants() == []
        service.delete_queue("prepared")


def test_a_key_that_is_no_admin_key_is_refused_before_anything_is_created(system: System) -> None:
    code, lines, err = system.check(TOCSIN_KEY="local-demo-key")
    assert code == 3 and lines == {} and "no admin key" in err and "TOCSIN_KEY" in err
    assert system.check(TOCSIN_URL="http://127.0.0.1:9")[0] == 4


async def let_ticks_be_old(system: System) -> None:
    """Store ticks that are ten minutes old, as those of a timer that has stopped."""
    tables = AzureTables.from_connection_string(system.azurite.connection_string)
    page = await tables.query(RowQuery(SWEEPS, PK_TICKS, limit=100))
    old = round(time.time() * 1000) - 600_000
    for row in page.rows:
        if "at" in row.props:
            await tables.write(SWEEPS, PK_TICKS, (Merge(row.rk, {"at": old}, ANY),))
    await tables.write(SWEEPS, PK_TICKS, (Upsert(SWEEP_ROW, {"began": old}),))
    await tables.close()


def test_a_timer_and_a_fire_function_that_are_off_are_found(tmp_path: Path) -> None:
    off = {f"AzureWebJobs.{name}.Disabled": "true" for name in ("sweep", "fire_shard")}
    with running(tmp_path, **off) as system:
        assert system.run_timer() == 404

        waiting.wait_until(
            lambda: system.ready()["timers"]["scheduler_scan"]["age_s"] is not None, "the look of the process's start", pause=0.2
        )
        asyncio.run(let_ticks_be_old(system))
        code, lines, _ = system.check()
        ahead = {"due in 3 s", "due in 4 s", "due in 6 s", "batch of 20"}
        assert code == 1 and bad(lines) - {"readyz"} == {"timer", *ahead}, lines
        assert "AzureWebJobs.sweep.Disabled" in lines["timer"]["do"]
        assert all("AzureWebJobs.fire_shard.Disabled" in lines[name]["do"] for name in ahead), lines
        assert lines["due now"]["result"] == lines["cancel"]["result"] == "ok"
        assert (system.tenants(), system.queues()) == ([], [])


@pytest.mark.parametrize("ahead", [5_000, -5_000])
def test_a_wrong_clock_and_a_stale_package_are_found(tmp_path: Path, ahead: int) -> None:
    planted = {"PYTHONPATH": os.pathsep.join((PLANTED, str(ROOT))), "PLANTED_AHEAD_MS": str(ahead), "PLANTED_VERSION": "0.1.9"}
    with running(tmp_path, **planted) as system:
        code, lines, _ = system.check()
        assert code == 1 and bad(lines) == {"clock", "versions"}, lines
        assert abs(lines["clock"]["skew_ms"] - ahead) < 1_500
        assert lines["versions"]["service"] == lines["versions"]["senders"] == ["0.1.9"]
