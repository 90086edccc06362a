"""Profiles: which app and which key are meant, and that no key is shown or sent elsewhere."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from shared.cli import main as frame
from shared.cli.connections import Connection, load_connections, resolve_connection
from shared.cli.exits import Exit
from shared.cli.failures import CommandFailed

SECRET = "a-very-secret-key"
FILE = """
default = "local"

[local]
url = "http://localhost:7071"
key_env = "LOCAL_KEY"

[prod]
url = "https://app.example"
tenant = "shop"
key_command = "COMMAND"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "show key"
    program.write_text(f"#!/bin/sh\necho {SECRET}\n")
    program.chmod(stat.S_IRWXU)
    (tmp_path / "profiles.toml").write_text(FILE.replace("COMMAND", f"'{program}'"))
    return {"TOCSIN_PROFILES": str(tmp_path / "profiles.toml"), "LOCAL_KEY": "local-demo-key"}


def test_named_profile_gives_address_tenant_and_key(environment: dict[str, str]) -> None:
    assert resolve_connection(environment, profile="prod") == Connection("https://app.example", SECRET, "shop")
    assert resolve_connection(environment, profile="prod", tenant="other").tenant == "other"
    assert resolve_connection({**environment, "TOCSIN_PROFILE": "prod"}).url == "https://app.example"


def test_default_profile_counts_where_nothing_else_is_said(environment: dict[str, str]) -> None:
    assert resolve_connection(environment) == Connection("http://localhost:7071", "local-demo-key")
    given = {**environment, "TOCSIN_URL": "https://other.example", "TOCSIN_KEY": "other-key"}
    assert resolve_connection(given) == Connection("https://other.example", "other-key")


def test_profile_never_gets_the_key_of_the_environment(environment: dict[str, str]) -> None:
    given = {**environment, "TOCSIN_URL": "https://other.example", "TOCSIN_KEY": "other-key"}
    assert resolve_connection(given, profile="local").key == "local-demo-key"
    del given["LOCAL_KEY"]
    with pytest.raises(CommandFailed, match="LOCAL_KEY is not set"):
        resolve_connection(given, profile="local")


def test_two_addresses_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(CommandFailed, match="both name an app"):
        resolve_connection(environment, profile="prod", url="https://other.example")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'[a]\nurl = "u"\nkey = "{SECRET}"', "contains a key"),
        (f'[a]\nurl = "u"\nkey_env = {SECRET}', "not TOML"),
        ('[a]\nurl = "u"', "needs url, and exactly one of"),
        ('[a]\nurl = "u"\nkey_env = "A"\nkey_command = "b"', "needs url, and exactly one of"),
        ('[a]\nkey_env = "A"', "needs url"),
        ('[a]\nurl = 1\nkey_env = "A"', "a non-empty text"),
        ('[a]\nurl = "u"\nkey_env = "A"\nwhat = "x"', "unknown field: what"),
        ('what = "x"', "neither a connection nor a setting"),
        ('default = "x"', "is not a connection of the file"),
        ('[default]\nurl = "u"\nkey_env = "A"', "no connection can be called default"),
    ],
)
def test_file_that_is_wrong_is_reported_without_what_is_in_it(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(CommandFailed, match=why) as failed:
        load_connections({"TOCSIN_PROFILES": str(file)})
    assert failed.value.status == Exit.USAGE and failed.value.where == str(file) and SECRET not in failed.value.text()


@pytest.mark.parametrize(
    ("command", "why"), [("false", "ended with exit code 1"), ("true", "printed nothing"), ("/nonexistent", "cannot be run")]
)
def test_command_that_gives_no_key_is_reported(environment: dict[str, str], command: str, why: str) -> None:
    Path(environment["TOCSIN_PROFILES"]).write_text(f'[x]\nurl = "https://a.example"\nkey_command = "{command}"')
    with pytest.raises(CommandFailed, match=why):
        resolve_connection(environment, profile="x")


def test_profile_that_is_not_there_is_reported_with_those_that_are(environment: dict[str, str]) -> None:
    with pytest.raises(CommandFailed) as failed:
        resolve_connection(environment, profile="dev")
    assert failed.value.advice == "Choose one of: local, prod."


def test_profiles_are_listed_without_keys(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for arguments in (["connections"], ["connections", "--json"]):
        with pytest.raises(SystemExit):
            frame.main(arguments)
        printed = capsys.readouterr().out
        assert "$LOCAL_KEY" in printed and "https://app.example" in printed
        assert SECRET not in printed and "local-demo-key" not in printed
    assert [json.loads(line)["default"] for line in printed.splitlines()] == [True, False]
