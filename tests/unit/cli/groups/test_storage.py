"""`tocsin storage`: the state of the accounts, and what keeps a host running while one of them is away."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from shared.cli import main as frame
from shared.cli import session
from shared.cli.exits import Exit
from shared.client.blocking import Client
from tests.texts import assert_text

type Run = Callable[..., tuple[int, str]]
NAMES = ["fire_shard", "sweep_soon"]
MIRROR = {
    "active": "second",
    "state": "waiting",
    "epoch": 1,
    "serves_in_s": 44.5,
    "lag_ms": None,
    "behind": None,
    "failback": None,
}


def state(*, first: bool = True, second: bool = True, mirror: dict[str, Any] | None = MIRROR) -> dict[str, Any]:
    seconds = [f"{name}_second" for name in NAMES]
    accounts = [
        {"place": "0", "role": "home", "reachable": first, "listeners": NAMES},
        {"place": "1", "role": "further", "reachable": False, "listeners": []},
        {"place": "m", "role": "second", "reachable": second, "listeners": seconds},
    ]
    return {"accounts": accounts, "mirror": mirror}


@pytest.fixture
def sent() -> list[httpx.Request]:
    return []


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, sent: list[httpx.Request]) -> Run:
    """Run the command against an app with this state. Return the exit code and the output."""
    monkeypatch.setenv("TOCSIN_URL", "https://app.test")
    monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
    monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent")

    def call(arguments: str, found: dict[str, Any]) -> tuple[int, str]:
        def answer(request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return httpx.Response(200, json=found)

        monkeypatch.setattr(session, "open_client", lambda app, **_: Client(app.url, app.key, transport=httpx.MockTransport(answer)))
        with pytest.raises(SystemExit) as ended:
            frame.main(arguments.split())
        return int(ended.value.code or 0), capsys.readouterr().out

    return call


def test_failover_prints_the_settings_for_each_account_that_does_not_answer(run: Run, sent: list[httpx.Request]) -> None:
    code, out = run("storage failover --yes", state(first=False))
    assert code == 0
    assert (sent[0].method, sent[0].url.path) == ("POST", "/api/v1/storage/failover")
    assert json.loads(sent[0].content) == {"to": "second", "incomplete": False}
    assert "AzureWebJobs.fire_shard.Disabled=true AzureWebJobs.sweep_soon.Disabled=true" in out
    assert "_second" not in out and "The further" not in out
    assert_text("storage.keep-up", out[out.index("The home") :], role="home")


def test_failover_prints_no_settings_where_every_account_with_queues_answers(run: Run) -> None:
    code, out = run("storage failover --incomplete --yes", state())
    assert code == 0 and "44.5" in out and "Disabled" not in out


def test_show_names_the_functions_of_a_second_account_that_does_not_answer(run: Run) -> None:
    code, out = run("storage show", state(second=False))
    assert code == 0 and "AzureWebJobs.fire_shard_second.Disabled=true" in out and "fire_shard.Disabled" not in out


def test_an_installation_without_a_mirror_shows_its_accounts(run: Run) -> None:
    code, out = run("storage show", state(first=False, mirror=None))
    assert code == 0 and "AzureWebJobs.fire_shard.Disabled=true" in out and "state" not in out


def test_an_app_that_does_not_name_the_functions_is_shown_without_settings(run: Run) -> None:
    found = state(first=False)
    for account in found["accounts"]:
        del account["listeners"]
    code, out = run("storage show", found)
    assert code == 0 and "Disabled" not in out


def test_programs_get_the_document(run: Run) -> None:
    _, out = run("storage failback --yes --json", state(first=False))
    assert json.loads(out) == state(first=False)


def test_a_change_of_sides_asks_first(run: Run, sent: list[httpx.Request], monkeypatch: pytest.MonkeyPatch) -> None:
    for verb in ("failover", "failback"):
        assert run(f"storage {verb}", state())[0] == Exit.USAGE
    assert sent == []
