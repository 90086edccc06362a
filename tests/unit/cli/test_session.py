"""Answers that a command does not expect: those of other programs at the app's address, those that say no, and numbers as they were
written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cli import main as frame
from shared.cli import session
from shared.cli.exits import Exit
from shared.cli.terminal import documents
from shared.client.blocking import Client
from tests.texts import assert_text

from . import stage

type Ask = Callable[..., tuple[int, str, str]]
WORDS = (
    "status",
    "events list",
    "events get x",
    "events create --delay PT1S",
    "events cancel x",
    "events stats",
    "leases doctor x",
    "leases plan x",
    "maintenance show x y",
    "turns revoke x 1 --note n",
    "schedules delete x --yes",
    "tenants keys create x --scope events",
)
EVIL = "\x1b[31m \x07 \x9b2J \u202e [red]x[/red]"


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run the command against one answer. Return the exit code, standard output and standard error."""
    monkeypatch.setenv("TOCSIN_URL", "https://app.test")
    monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
    monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent")

    def run(arguments: str, answer: httpx.Response) -> tuple[int, str, str]:
        transport = httpx.MockTransport(lambda request: answer)
        monkeypatch.setattr(session, "open_client", lambda app, **_: Client(app.url, app.key, transport=transport, retries=0))
        with pytest.raises(SystemExit) as ended:
            frame.main(arguments.split())
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def problem(status: int, title: str = "No", detail: str = "not now") -> httpx.Response:
    return httpx.Response(status, json={"type": "https://x/problems/no", "status": status, "title": title, "detail": detail})


@pytest.mark.parametrize("arguments", WORDS)
@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>log in</html>"),
        httpx.Response(503, text="<html>down</html>"),
        httpx.Response(404),
        httpx.Response(403, json={"error": "of a proxy"}),
        httpx.Response(301, headers={"location": "https://elsewhere.example"}),
        httpx.Response(200, json=[]),
        httpx.Response(200, content=b"\xff"),
    ],
    ids=["page", "gateway", "empty", "proxy", "redirect", "list", "binary"],
)
def test_an_answer_of_another_service_is_reported_as_such(ask: Ask, arguments: str, answer: httpx.Response) -> None:
    code, out, err = ask(arguments, answer)
    assert code == Exit.UNREACHABLE and out == "" and "where: TOCSIN_URL" in err and "do: " in err
    assert_text("command.answer-of-another-service", re.sub("the app.*", "the app", err.splitlines()[0]))


def test_what_an_answer_lacks_is_named(ask: Ask) -> None:
    code, _, err = ask("leases fleets", httpx.Response(200, json={"items": [{"name": "web"}], "next": None}))
    assert code == Exit.UNREACHABLE and "the answer lacks profile" in err
    code, _, err = ask("leases fleets", httpx.Response(200, json={"items": [1, None], "next": None}))
    assert code == Exit.UNREACHABLE and "no list of items" in err


def test_nodes_have_a_column_of_loads_where_one_publishes_them(ask: Ask) -> None:
    plain = {name: value for name, value in stage.NODES[0].items() if name != "loads"}
    code, out, _ = ask("leases nodes x", httpx.Response(200, json={"items": [{**plain, "loads": {}}, plain], "next": None}))
    assert code == 0 and "LOAD" not in out, "a former app answers without them"
    busy = {**plain, "loads": {"0": 12.5, "7": 1200}}
    code, out, _ = ask("leases nodes x", httpx.Response(200, json={"items": [busy, plain], "next": None}))
    assert code == 0 and "LOAD" in out and "1212" in out


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("events get x", {"id": "x", "attempts": "x"}),
        ("events list", {"items": [{**stage.DEAD, "late_ms": "x"}], "next": None}),
        ("turns list x", {"items": [{**stage.TURN, "timeout_ms": []}], "next": None}),
        ("leases doctor x", {**stage.FLEET, **stage.STALE, **stage.PLAN, "servers": None}),
        ("leases nodes x --watch 1 --times 1", {"items": [{**stage.NODES[0], "beat": "x"}], "next": None}),
        ("maintenance watch x --times 1", {"items": [{**stage.FREEZE, "nodes": 7}], "next": None}),
        ("status", {**stage.READY, "timers": {"lease_scan": {}}, **stage.STATS, "items": [], "next": None}),
    ],
)
def test_answer_of_another_kind_is_reported_as_such(ask: Ask, arguments: str, answer: dict[str, Any]) -> None:
    code, _, err = ask(arguments, httpx.Response(200, json=answer))
    assert code == Exit.UNREACHABLE and "where: TOCSIN_URL" in err and "Traceback" not in err
    assert_text("command.answer-with-another-field", re.sub(r"\(.* in .*\.py, line .*\)", "(...)", err))


def test_fault_of_the_command_itself_is_not_put_on_the_app(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    monkeypatch.setattr(session.CommandSession, "get", lambda *_, **__: {}["no such thing"])
    with pytest.raises(KeyError):
        frame.main(["events", "get", "x"])


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 429, 500, 501, 503])
def test_refusal_of_the_app_is_3_and_says_what_to_do(ask: Ask, status: int) -> None:
    code, out, err = ask("events get x", problem(status))
    assert (code, out) == (Exit.REFUSED, "")
    assert err.splitlines()[:2] == ["tocsin: No: not now", "  where: GET events/x"] and "  do: " in err


@pytest.mark.parametrize(
    ("status", "code", "helps"),
    [
        (409, "already-final", "new id"),
        (409, "not-dead", "new id"),
        (409, "id-conflict", "another id"),
        (412, "precondition-failed", "Read it again"),
        (413, "content-too-large", "Send less"),
        (503, "start-refused", "log"),
        (409, "calendar-in-use", "Read what is stored now"),
        (503, "storage-unavailable", "Try again"),
    ],
)
def test_the_advice_can_help_against_this_refusal(ask: Ask, status: int, code: str, helps: str) -> None:
    document = {"type": f"https://tocsin.dev/problems/{code}", "status": status, "title": "No", "detail": "not now"}
    _, _, err = ask("events get x", httpx.Response(status, json=document))
    advice = err.partition("  do: ")[2]
    assert helps in advice and (code == "precondition-failed" or "repeat the change" not in advice)


def test_no_text_of_others_moves_a_cursor(ask: Ask) -> None:
    for arguments, answer in (
        ("events get x", problem(409, EVIL, EVIL)),
        ("events get x", httpx.Response(200, json={"id": "x", "payload": EVIL, "labels": {EVIL: EVIL}})),
        ("events get x --json", httpx.Response(200, json={"id": "x", "payload": EVIL})),
        ("events get x --json", httpx.Response(200, text=json.dumps({"payload": EVIL + "\x7f\u2028"}, ensure_ascii=False))),
    ):
        _, out, err = ask(arguments, answer)
        printed = (out + err).replace("\n", "")
        assert printed.isprintable() and "[red]x[/red]" in printed
        if arguments.endswith("--json"):
            assert json.loads(out)["payload"].startswith(EVIL)


NUMBERS = '{"a":0.12345678901234567890123,"b":123456789012345678901234567890,"c":1.10,"d":1E2,"e":-0.0}'


def test_numbers_keep_their_digits_both_ways(ask: Ask, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[bytes] = []

    def echo(request: httpx.Request) -> httpx.Response:
        sent.append(request.content)
        return httpx.Response(201, content=b'{"id":"x","state":"scheduled","due":"d","payload":%b}' % NUMBERS.encode())

    monkeypatch.setattr(session, "open_client", lambda app, **_: Client(app.url, app.key, transport=httpx.MockTransport(echo)))
    for verb in (["create", "--delay", "PT1H"], ["change", "x"]):
        with pytest.raises(SystemExit):
            frame.main(["events", *verb, "--payload", NUMBERS, "--json"])
        assert f'"payload":{NUMBERS}'.encode() in sent[-1] and f'"payload":{NUMBERS}' in capsys.readouterr().out


@pytest.mark.parametrize("text", ['"\\ud800"', "[" * 100_000, "[" * 400 + "]" * 400, "NaN", "1_0", '\ufeff{"a":1', ""])
def test_payload_that_cannot_be_sent_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str) -> None:
    monkeypatch.setenv("TOCSIN_URL", "https://app.test")
    monkeypatch.setenv("TOCSIN_KEY", "a-very-secret-key")
    with pytest.raises(SystemExit) as ended:
        frame.main(["events", "create", "--delay", "PT1H", "--payload", text])
    captured = capsys.readouterr()
    assert ended.value.code == Exit.USAGE and "this is not JSON" in captured.err and "where: --payload" in captured.err


SIGNS = st.text(st.characters(exclude_categories=("Cs",)))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | SIGNS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SIGNS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_json_comes_back_as_it_was_whatever_is_escaped(value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"))
    printed = documents.to_json(documents.parse(text))
    assert printed.isprintable() and json.loads(printed) == value
