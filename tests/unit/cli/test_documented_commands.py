"""Every command line of `tocsin`, `make` and `python -m` in the documentation, in a block or within a sentence, is one that exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import typer

from shared.cli import main as frame
from tests.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "UPGRADING.md", *sorted((ROOT / "docs").rglob("*.md"))]
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


def test_every_target_of_make_is_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [(page, words[0]) for page, words in shown("make") if words]
    assert len(named) > 30
    assert [each for each in named if each[1] not in targets] == []


def test_every_module_is_there() -> None:
    named = [(page, words[0]) for page, words in shown("python -m")]
    assert len(named) > 20
    assert [each for each in named if importlib.util.find_spec(each[1].replace("tocsin", "shared")) is None] == []
