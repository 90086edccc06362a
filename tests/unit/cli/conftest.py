"""The command in this process, against the whole service in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from shared.cli import main as frame
from shared.cli import session
from shared.testing import BlockingTocsin
from shared.testing.kit import KEY


class CommandResult(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def documents(self) -> list[Any]:
        """Standard output, as JSON documents."""
        return [json.loads(line) for line in self.lines]

    def row(self, first: str) -> list[str]:
        """The cells of the table's row that begins with this."""
        [found] = [line for line in self.lines if line.startswith(f"{first} ")]
        return re.split(r" {2,}", found)


class Command:
    """`tocsin`, with the kit's client in place of the network."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kit: BlockingTocsin) -> None:
        self._capsys, self.kit, self.environment = capsys, kit, monkeypatch
        monkeypatch.setattr(session, "open_client", lambda app, **_: kit.client_with(app.key, tenant=app.tenant))
        monkeypatch.setenv("TOCSIN_URL", "https://tocsin.test")
        monkeypatch.setenv("TOCSIN_KEY", KEY)
        monkeypatch.setenv("TOCSIN_PROFILES", "/nonexistent/profiles.toml")
        monkeypatch.delenv("TOCSIN_PROFILE", raising=False)

    def __call__(self, *arguments: str) -> CommandResult:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            frame.main(arguments)
        printed = self._capsys.readouterr()
        return CommandResult(int(ended.value.code or 0), printed.out, printed.err)

    def ok(self, *arguments: str) -> CommandResult:
        """Run a command that must succeed."""
        result = self(*arguments)
        assert result.code == 0, result
        return result


@pytest.fixture(scope="module")
def kit() -> Iterator[BlockingTocsin]:
    with BlockingTocsin() as running:
        yield running


@pytest.fixture
def tocsin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kit: BlockingTocsin) -> Command:
    return Command(capsys, monkeypatch, kit)
