"""The pages about client and kit say what is so: their code is the examples' code, or is run here."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import shared as tocsin
from shared.testing import BlockingTocsin, Tocsin

ROOT = Path(__file__).parents[3]
DAY = timedelta(days=1)


def blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the file that the line above names, or ''."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"(?:<!-- (\S+) -->\n)?```python\n(.*?)```", text, re.DOTALL)


def test_examples_on_the_page_are_the_files() -> None:
    named = {name: code for name, code in blocks("testing.md") if name}
    folder = ROOT / "docs" / "examples" / "testing"
    assert set(named) == {f"docs/examples/testing/{path.name}" for path in folder.glob("*.py")}
    for name, code in named.items():
        assert code == (ROOT / name).read_text(), name


def as_shared(code: str) -> str:
    """The package goes by another name in its own tests."""
    return re.sub(r"^import tocsin$", "import shared as tocsin", code, flags=re.MULTILINE).replace("from tocsin.", "from shared.")


def test_code_about_the_client_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with BlockingTocsin() as kit:
        monkeypatch.setattr(tocsin, "Client", lambda url, key: kit.client_with(key))
        code = [block for _, block in blocks("client.md")]
        assert len(code) == 4
        names: dict[str, Any] = {"key": "local-demo-key", "secret": kit.secret}
        for block in code:
            # The first block opens and closes a client of its own; the others are given one.
            exec(compile(as_shared(block), "docs/client.md", "exec"), names)
            names["client"] = kit.client
        kit.deliver_to(names["hook"])
        kit.client.schedule({"n": 1}, delay=DAY, id="last")
        assert [got.verdict.status for got in kit.advance(2 * DAY) if got.id == "last"] == [204]


async def test_code_about_async_tests_runs() -> None:
    [code] = [block for name, block in blocks("testing.md") if not name]
    taken = []

    def app(request: httpx.Request) -> int:
        taken.append((request.method, str(request.url)))
        return 204

    names: dict[str, Any] = {"app": app}
    exec(compile(as_shared(code), "docs/testing.md", "exec"), names)
    await names["test_reminder_comes_after_a_month"]()
    assert taken == [("POST", "http://shop.test/hooks/reminders")] and names["Tocsin"] is Tocsin
