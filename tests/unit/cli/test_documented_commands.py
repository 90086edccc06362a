"""Every command line of `tocsin`, `make` and `python -m` in documentation, alert rules, charts, errors and help is one that exists."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import typer

from shared.cli import main as frame
from tests.paths import ROOT, docs_pages

SOURCES = [
    *(path for name in ("shared", "devhost") for path in sorted((ROOT / name).rglob("*.py"))),
    *(path for name in ("yml", "json", "bicep") for path in sorted((ROOT / "infra").rglob(f"*.{name}"))),
    *sorted((ROOT / "shared").rglob("*.js")),
    *sorted((ROOT / "shared").rglob("*.html")),
]
PROSE = frozenset({"failed", "is", "lock", "with", "work"})
"""Words that follow the name of the program in a sentence, or in the name of a thread."""
PAGES = [ROOT / "README.md", ROOT / "UPGRADING.md", *docs_pages()]
ROOT_COMMAND = typer.main.get_command(frame.build([]))


def lines(page: Path) -> Iterator[str]:
    """The lines of a page's blocks, continued ones joined, and its spans of code."""
    text = page.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```$|^((?: {4}[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    for fenced, indented in blocks:
        yield from (fenced or indented).replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", text)


def words_after(program: str, page: Path) -> Iterator[list[str]]:
    """The arguments of a program, of each line of a page that runs it."""
    for line in lines(page):
        found = re.match(rf"\s*(?:[A-Z_]+=\S+ )*{program}(?=\s|$)(.*)", line)
        if found and "..." not in line and "…" not in line:
            lexer = shlex.shlex(found[1], posix=True, punctuation_chars="|;<>&")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in lexer:
                if re.fullmatch(r"[|;<>&]+", word):
                    break
                words.append(word)
            yield words


def shown(program: str) -> list[tuple[str, list[str]]]:
    return [(page.relative_to(ROOT).as_posix(), words) for page in PAGES for words in words_after(program, page)]


def fault(words: list[str]) -> str | None:
    """Return what is wrong with a command line of `tocsin`. A mere prefix of commands is right."""
    command, path = ROOT_COMMAND, ["tocsin"]
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words[0])
        command, words = command.commands[words[0]], words[1:]  # type: ignore[attr-defined]
    if hasattr(command, "commands"):
        return f"{' '.join(path)} has no {words[0]}" if words and not words[0].startswith("--") else None
    try:
        if words:
            # N stands for a number.
            command.make_context(" ".join(path), ["1" if word == "N" else word for word in words])
    except Exception as error:
        return f"{' '.join([*path, *words])}: {error}"
    return None


def test_every_command_is_understood() -> None:
    commands = shown("tocsin")
    assert len(commands) > 150
    assert [(page, wrong) for page, words in commands if (wrong := fault(words))] == []


def texts(path: Path) -> Iterator[str]:
    """The texts of a file: of a module its constants, with NAME for each value that is put in."""
    if path.suffix != ".py":
        yield path.read_text()
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "NAME" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def mentions(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command that a text names, and the options up to the end of its line or sentence."""
    for found in re.finditer(r"(?<![\w./@-])tocsin((?: [a-z][a-z-]*+(?![\w(=/]))+)(?=([^\n`;()]*))", text):
        yield found[1].split(), re.findall(r"(?<![\w-])--[a-z-]+", re.split(r"[.,] ", found[2])[0])


def unknown(words: list[str], options: list[str]) -> str | None:
    """Return what no command has of these words and options."""
    command, path = ROOT_COMMAND, ["tocsin"]
    for word in words:
        commands = getattr(command, "commands", None)
        if commands is None:
            break
        if word not in commands:
            return None if command is ROOT_COMMAND and word in PROSE else f"{' '.join(path)} has no {word}"
        command, path = commands[word], [*path, word]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    missing = sorted(set(options) - known) if not hasattr(command, "commands") else []
    return f"{' '.join(path)} has no {missing[0]}" if missing else None


def test_every_command_that_a_message_a_rule_or_a_chart_names_is_there() -> None:
    named = [(path, *each) for path in SOURCES for text in texts(path) for each in mentions(text)]
    assert len(named) > 250 and len({path for path, _, _ in named if "infra" in path.parts}) >= 3
    assert [(path.relative_to(ROOT).as_posix(), wrong) for path, *each in named if (wrong := unknown(*each))] == []


def test_a_command_or_option_that_is_not_there_is_found() -> None:
    rule = "`tocsin dead` shows why. `tocsin turns show {{ $labels.fleet }}`. Run tocsin events list --state dead --no, or tocsin status."
    assert [unknown(*each) for each in mentions(rule)] == [
        "tocsin has no dead",
        "tocsin turns has no show",
        "tocsin events list has no --no",
        None,
    ]


def test_every_target_of_make_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [(page, words[0]) for page, words in shown("make") if words]
    assert len(named) > 30
    assert [each for each in named if each[1] not in targets] == []


def test_every_module_is_there() -> None:
    named = [(page, words[0]) for page, words in shown("python -m")]
    assert len(named) > 20
    assert [each for each in named if importlib.util.find_spec(each[1].replace("tocsin", "shared")) is None] == []
