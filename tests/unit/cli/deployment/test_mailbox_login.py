"""Tokens of `az login`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.cli.deployment.mailbox import LoginTokens
from shared.cli.failures import CommandFailed
from shared.storage.blocking import run_through


def authorize(tokens: LoginTokens) -> str:
    headers: dict[str, str] = {}
    run_through(tokens.authorize("GET", "/", {}, headers, 0))
    assert headers["x-ms-date"].endswith("GMT")
    return headers["Authorization"]


def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    now, asked = 1000.0, 0

    def ask() -> str:
        nonlocal asked
        asked += 1
        return json.dumps({"accessToken": f"t{asked}", "expires_on": round(now) + 3600})

    tokens = LoginTokens(ask, lambda: now)
    assert [authorize(tokens), authorize(tokens)] == ["Bearer t1", "Bearer t1"]
    now += 3301
    assert authorize(tokens) == "Bearer t2" and tokens.refused() and authorize(tokens) == "Bearer t3"


def test_a_token_that_ends_soon_is_used_for_half_of_its_time() -> None:
    now, asked = 1000.0, 0

    def ask() -> str:
        nonlocal asked
        asked += 1
        return json.dumps({"accessToken": f"t{asked}", "expires_on": round(now) + 60})

    tokens = LoginTokens(ask, lambda: now)
    authorize(tokens)
    now += 29
    assert authorize(tokens) == "Bearer t1"
    now += 2
    assert authorize(tokens) == "Bearer t2"


@pytest.mark.parametrize("printed", ["", "[]", "{}", "null", '{"accessToken": "s3cret", "expires_on": "soon"}'])
def test_output_without_a_token_is_an_error_that_shows_nothing_of_it(printed: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        authorize(LoginTokens(lambda: printed))
    assert "az printed no token" in failed.value.text() and "s3cret" not in failed.value.text()


def program(folder: Path, script: str) -> None:
    path = folder / "az"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_az_is_asked_for_a_token_of_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, f'echo "$@" > {tmp_path}/asked; echo \'{{"accessToken": "t", "expires_on": 9000000000}}\'')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert authorize(LoginTokens()) == "Bearer t"
    asked = (tmp_path / "asked").read_text()
    assert asked == "account get-access-token --resource https://storage.azure.com/ --output json\n"


def test_az_that_is_missing_or_not_signed_in_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandFailed, match="az is not installed") as missing:
        authorize(LoginTokens())
    assert "az login" in missing.value.advice
    program(tmp_path, "echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1")
    with pytest.raises(CommandFailed, match="Please run 'az login'") as refused:
        authorize(LoginTokens())
    assert "az login" in refused.value.advice
