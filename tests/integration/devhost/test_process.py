"""The whole command: how it starts, what it says, and how it ends."""

import asyncio
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from devhost.loops import LoopError, chosen_loop, loop_factory
from tests.waiting import wait_until

from .conftest import Process
from .test_azurite import alive

BARE = ("--no-azurite", "--no-receiver")
# The sample's queue functions poll a storage address without a listener. The process must cope with that.
NOWHERE = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5;QueueEndpoint=http://127.0.0.1:9/devstoreaccount1;"

Start = Callable[..., Process]


def request(url: str) -> Callable[[], httpx.Response | Exception | None]:
    """Sends a request from the side; the answer comes from the function returned."""
    result: list[httpx.Response | Exception] = []

    def send() -> None:
        try:
            result.append(httpx.get(url, timeout=180))
        except httpx.HTTPError as error:
            result.append(error)

    thread = threading.Thread(target=send)
    thread.start()

    def answer() -> httpx.Response | Exception | None:
        thread.join(180)
        return result[0] if result else None

    return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_lets_the_running_invocation_answer_and_ends_with_0(devhost: Start, number: signal.Signals) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE)
    url = process.ready()
    answer = request(f"{url}/api/gate")
    process.wait_for_file("started")
    process.signal(number)
    host, port = url.removeprefix("http://").split(":")
    wait_until(lambda: _refuses(host, int(port)), "a closed port")
    assert not (process.meeting / "finished").exists()
    (process.meeting / "release").touch()
    response = answer()
    assert isinstance(response, httpx.Response) and response.text == "through"
    assert process.exit_code() == 0
    assert "Traceback" not in process.text


def _refuses(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


def test_invocation_that_outlasts_the_grace_is_cut_off(devhost: Start) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE, DEVHOST_GRACE="1")
    answer = request(f"{process.ready()}/api/hang")
    process.wait_for_file("started")
    process.signal(signal.SIGTERM)
    assert process.exit_code() == 0
    assert isinstance(answer(), Exception)
    assert "cut off after 1 s: hang" in process.text


def test_second_signal_ends_at_once_with_1(devhost: Start) -> None:
    process = devhost(*BARE, AzureWebJobsStorage=NOWHERE)
    answer = request(f"{process.ready()}/api/gate")
    process.wait_for_file("started")
    process.signal(signal.SIGTERM)
    wait_until(lambda: "a second signal stops at once" in process.text, "the first signal")
    process.signal(signal.SIGTERM)
    assert process.exit_code() == 1
    assert isinstance(answer(), Exception)


def test_signal_during_the_start_ends_cleanly(devhost: Start) -> None:
    process = devhost("--no-receiver", AZURITE="memory", AZURITE_BLOB_PORT="0", AZURITE_QUEUE_PORT="0", AZURITE_TABLE_PORT="0")
    child = wait_until(lambda: _azurite_of(process), "Azurite")
    process.signal(signal.SIGTERM)
    assert process.exit_code() == 0
    wait_until(lambda: not alive(child), "the end of Azurite")


def test_kill_leaves_no_azurite_behind(devhost: Start) -> None:
    process = devhost("--no-receiver", AZURITE="memory", AZURITE_BLOB_PORT="0", AZURITE_QUEUE_PORT="0", AZURITE_TABLE_PORT="0")
    process.ready()
    child = _azurite_of(process)
    assert child is not None
    process.popen.kill()
    process.exit_code()
    wait_until(lambda: not alive(child), "the end of Azurite")


def test_folder_has_one_devhost_at_a_time_and_is_free_however_that_one_ends(devhost: Start, tmp_path: Path) -> None:
    ports = {f"AZURITE_{name}_PORT": "0" for name in ("BLOB", "QUEUE", "TABLE")}
    data = tmp_path / "data"
    first = devhost("--no-receiver", AZURITE_LOCATION=str(data), **ports)
    first.ready()
    assert f"Azurite, data in {data}" in first.text
    second = devhost(AZURITE_LOCATION=str(data), **ports)
    assert second.exit_code() == 1
    [line] = second.text.splitlines()
    assert line.startswith(f"devhost: another devhost (process {first.popen.pid}) uses the data in {data}")
    assert "AZURITE_LOCATION=<folder>" in line and "AZURITE=memory" in line
    first.popen.kill()
    first.exit_code()
    third = devhost("--no-receiver", AZURITE_LOCATION=str(data), **ports)
    third.ready()
    third.signal(signal.SIGTERM)
    assert third.exit_code() == 0


@pytest.mark.parametrize(
    ("variable", "what"), [("PORT", "the API"), ("RECEIVER_PORT", "the receiver"), ("AZURITE_TABLE_PORT", "Azurite table")]
)
def test_port_in_use_ends_with_a_message_that_names_the_variable(devhost: Start, variable: str, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"AZURITE_BLOB_PORT": "0", "AZURITE_QUEUE_PORT": "0", variable: str(port)}
        process = devhost(AZURITE="memory" if "TABLE" in variable else "off", AzureWebJobsStorage=NOWHERE, **ports)
        assert process.exit_code() == 1
    assert f"devhost: port {port} ({what})" in process.text and f"{variable}=<port>" in process.text
    assert "Traceback" not in process.text


def test_banner_names_what_runs(sample: Process) -> None:
    url = sample.ready()
    text = sample.text
    assert re.search(r"\(\d+ http, 2 queue, 1 timer\)", text)
    assert f"{url}/api/openapi.json" in text and f"curl -X POST {url}/api/v1/events" in text


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"AZURITE": "tape"}, "AZURITE must be memory or off"),
        ({"PORT": "many"}, "PORT must be a number, not 'many'"),
        ({"PORT": "99999"}, "PORT must be a port, 0 to 65535, not 99999"),
        ({"DEVHOST_HOSTS": "tocsin:7071"}, "DEVHOST_HOSTS must hold names and addresses without ports"),
        ({"DEVHOST_LOOP": "trio"}, "DEVHOST_LOOP must be uvloop or asyncio, not 'trio'"),
        ({"DEVHOST_FLEX": "idle=soon"}, "DEVHOST_FLEX: idle must be a number, not 'soon'"),
        ({"DEVHOST_REFUSED": "idle=3"}, "DEVHOST_REFUSED: 'idle' is none of ends, again, start, timers"),
        ({"LOG_LEVEL": "loud"}, "LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not 'loud'"),
    ],
)
def test_wrong_environment_is_explained(devhost: Start, variables: dict[str, str], message: str) -> None:
    process = devhost(**variables)
    assert process.exit_code() == 2
    assert message in process.text


@pytest.mark.parametrize(
    ("variables", "module"), [({}, "uvloop"), ({"DEVHOST_LOOP": "uvloop"}, "uvloop"), ({"DEVHOST_LOOP": "asyncio"}, "asyncio.unix_events")]
)
def test_app_runs_on_the_loop_of_production_or_on_the_one_that_is_named(devhost: Start, variables: dict[str, str], module: str) -> None:
    url = devhost(*BARE, AzureWebJobsStorage=NOWHERE, **variables).ready()
    assert httpx.get(f"{url}/api/loop", timeout=180).text == module


async def test_tests_run_on_the_loop_of_the_devhost() -> None:
    other = loop_factory(chosen_loop(os.environ))()
    other.close()
    assert type(asyncio.get_running_loop()) is type(other)


def test_uvloop_that_is_asked_for_and_missing_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    assert chosen_loop({}) == "asyncio"
    with pytest.raises(LoopError, match="not installed"):
        chosen_loop({"DEVHOST_LOOP": "uvloop"})


def test_missing_connection_setting_is_explained(devhost: Start, tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(
        "import azure.functions as func\napp = func.FunctionApp()\n"
        "@app.queue_trigger(arg_name='m', queue_name='q', connection='Nowhere')\nasync def f(m: func.QueueMessage) -> None: ...\n"
    )
    process = devhost(*BARE, app=tmp_path)
    assert process.exit_code() == 1
    assert "devhost: the setting 'Nowhere', " in process.text


def _azurite_of(process: Process) -> int | None:
    """The process id of the devhost's Azurite; libraries start short-lived children of their own while they are imported."""
    for child in Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"azurite" in command:
            return int(child)
    return None
