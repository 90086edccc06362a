"""The frame of the `tocsin` command: groups, help, failures, and what is loaded when."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from shared.cli import main as frame
from shared.cli.exits import Exit
from shared.cli.failures import CommandFailed, to_command_failure
from shared.client.errors import Fault, Forbidden, Invalid, Unreachable
from shared.core.errors import Problem, TocsinError
from shared.core.version import version
from tests.paths import ROOT
from tests.texts import assert_text

SECRET = "a-very-secret-key"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        frame.main(words)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_help_lists_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0 and all(name in out for name in frame.GROUPS)


@pytest.mark.parametrize("group", frame.GROUPS)
def test_every_group_has_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    code, out, _ = run(capsys, group, "--help")
    assert code == 0 and "Usage: tocsin" in out


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its arguments on the command line; groups excluded."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
    for name, child in (children or {}).items():
        yield from leaves(child, (*path, name))


COMMANDS = dict(leaves(typer.main.get_command(frame.build([]))))


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 50


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_examples_that_parse(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    head, _, rest = command.epilog.replace("\\[", "[").partition("Examples:")
    examples = [line for line in rest.splitlines() if line]
    assert 1 <= len(examples) <= 3 and command.help, head
    for example in examples:
        words = shlex.split(example)
        if path == ("completion",):
            assert "tocsin completion " in example
            continue
        name = ("connections",) if command.hidden else path
        assert tuple(words[: len(name) + 1]) == ("tocsin", *name), example
        COMMANDS[name].make_context(example, words[len(name) + 1 :])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_has_a_help_text_that_is_a_sentence(path: tuple[str, ...]) -> None:
    parameters = [each for each in COMMANDS[path].params if each.name != "help"]
    assert parameters
    for parameter in parameters:
        assert parameter.help and parameter.help.endswith("."), parameter.name


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_names_what_each_option_takes(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    _, out, _ = run(capsys, *path, "--help")
    bare = [line for line in out.splitlines() if re.search(r"--[\w-]+ .*<(str|int|float|path|bool)>", line) and "--help" not in line]
    assert not bare
    named = set(re.findall(r"--[\w-]+ +(?:-\w +)?([A-Z]+) ", out))
    assert named <= VALUES, named - VALUES


VALUES = {
    *(
        "ACCOUNT",
        "ACTION",
        "ADDRESS",
        "AUDIENCE",
        "CALENDAR",
        "CHANNEL",
        "CRON",
        "DATE",
        "DURATION",
        "FILE",
        "FLEET",
        "FOLDER",
        "HOST",
        "ID",
        "JSON",
        "KEY",
    ),
    *("N", "NAME", "NODE", "PATH", "PREFIX", "PROFILE", "QUEUE", "REASON", "SCOPE", "SECONDS", "SERVER", "STATE", "STATUS", "TENANT"),
    *("CHANGE", "CONDITION", "HOLDER", "TEXT", "TIME", "TIMEZONE", "TYPE", "URL", "VERSION"),
}
"""Words for the values of options. A new option that takes the last word of its name may need a better one."""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_usage_names_arguments_without_braces(capsys: pytest.CaptureFixture[str], path: tuple[str, ...]) -> None:
    _, out, _ = run(capsys, *path, "--help")
    [usage] = re.findall(r"Usage: .*", out)
    assert "{" not in usage and "}" not in usage


def test_a_wrong_choice_is_named_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "completion", "powershell")
    assert code == Exit.USAGE and "Invalid value for 'SHELL': 'powershell' is not one of 'bash', 'zsh', 'fish'." in err


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert (code, out) == (0, f"tocsin {version()}\n")


def test_a_misspelt_name_is_wrong_usage_and_the_right_one_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "chekpoint")
    assert code == Exit.USAGE and "checkpoint" in err


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({"TOCSIN_KEY": SECRET}, "TOCSIN_URL"),
        ({"TOCSIN_URL": "https://app.example"}, "TOCSIN_KEY"),
        ({"TOCSIN_KEY": SECRET, "TOCSIN_URL": f"ftp://{SECRET}@app"}, "TOCSIN_URL"),
        ({"TOCSIN_KEY": SECRET, "TOCSIN_URL": f"https://name:{SECRET}"}, "TOCSIN_URL"),
        ({"TOCSIN_KEY": SECRET, "TOCSIN_URL": "http://[::1"}, "TOCSIN_URL"),
        ({"TOCSIN_KEY": SECRET, "TOCSIN_URL": "http://app\n.example"}, "TOCSIN_URL"),
        ({"TOCSIN_KEY": f"{SECRET}!", "TOCSIN_URL": "https://app.example"}, "TOCSIN_KEY"),
    ],
)
def test_setting_that_lacks_or_is_wrong_is_named_and_never_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], where: str
) -> None:
    for name in ("TOCSIN_URL", "TOCSIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = run(capsys, "checkpoint", "run", "--fleet", "f", "--node", "n", "--", "true")
    assert code == Exit.USAGE and f"where: {where}" in err and "do: " in err
    assert SECRET not in out + err


def test_help_shows_no_value_of_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_KEY", SECRET)
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, "checkpoint", "run", "--help")
    assert code == 0 and "TOCSIN_KEY" in out and SECRET not in out


def test_failures_say_what_where_and_what_to_do() -> None:
    forbidden = to_command_failure(Forbidden(403, "forbidden", "the key lacks the scope fleets", call="POST fleets/f", title="Forbidden"))
    assert forbidden.status == Exit.REFUSED
    assert_text("command.forbidden", forbidden.text().splitlines(), detail="the key lacks the scope fleets", call="POST fleets/f")
    invalid = to_command_failure(Invalid(422, "invalid", "the body is not right", title="Invalid", errors=[Fault("/term", "not below 0")]))
    assert "/term: not below 0" in invalid.title
    assert to_command_failure(Unreachable("not reached", sent=False)).status == Exit.UNREACHABLE
    assert to_command_failure(Problem(409, "late", "too late")).text() == "tocsin: Late: too late"
    assert to_command_failure(TocsinError("broken")).status == Exit.FAILED
    own = CommandFailed("x")
    assert to_command_failure(own) is own


LOADED = """
import sys
from shared.cli.main import build
build(["checkpoint", "run"])
print(sorted({name.partition(".")[0] for name in sys.modules} & {"httpx", "pydantic", "aiohttp", "rich", "yaml", "azure"}))
"""


def test_group_that_is_not_used_loads_nothing() -> None:
    printed = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"


def test_exit_codes_are_unique_and_the_pages() -> None:
    page = (ROOT / "docs" / "how-to" / "checkpoint-program.md").read_text()
    for code in Exit:
        if code >= Exit.NO_TURN:
            assert re.search(rf"^- {code.value}: ", page, re.MULTILINE), code


def test_page_of_the_command_names_every_group_and_code() -> None:
    page = (ROOT / "docs" / "reference" / "command.md").read_text()
    assert all(f"`tocsin {name}" in page for name in frame.GROUPS)
    assert {code for code in Exit if code < Exit.NO_TURN} == {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
