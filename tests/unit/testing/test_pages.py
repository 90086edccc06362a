"""The pages about client and kit say what is so: their code is the examples' code, or is run here."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import shared as tocsin
from shared.testing import BlockingTocsin
from tests.paths import ROOT

DAY = timedelta(days=1)


def blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the file that the line above names, or ''."""
    text = (ROOT / "docs" / page).read_text()
    return re.findall(r"(?:<!-- (\S+) -->\n)?```python\n(.*?)```", text, re.DOTALL)


def test_examples_on_the_page_are_the_files() -> None:
    named = {name: code for name, code in blocks("how-to/testing.md") if name}
    assert {Path(name).name for name in named} == {"test_reminders.py"}
    for name, code in named.items():
        assert code.rstrip() == (ROOT / name).read_text().rstrip(), name


def as_shared(code: str) -> str:
    """The package goes by another name in its own tests."""
    return re.sub(r"^import tocsin$", "import shared as tocsin", code, flags=re.MULTILINE).replace("from tocsin.", "from shared.")


def test_code_about_the_client_runs_as_often_as_one_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    with BlockingTocsin() as kit:
        monkeypatch.setattr(tocsin, "Client", lambda url, key, tenant=None: kit.client_with(key, tenant=tenant))
        code = [block for _, block in blocks("reference/client.md")]
        assert len(code) == 6
        for _ in range(2):
            names: dict[str, Any] = {"key": "local-demo-key", "secret": kit.secret}
            for block in code:
                # The first block opens and closes a client of its own; the others are given one.
                exec(compile(as_shared(block), "docs/reference/client.md", "exec"), names)
                names["client"] = kit.client
            kit.deliver_to(names["hook"])
            last = kit.client.schedule({"n": 1}, delay=DAY)
            assert [got.verdict.status for got in kit.advance(2 * DAY) if got.id == last.id] == [204]


def test_every_block_about_testing_is_a_file_and_the_async_one_needs_no_plugin() -> None:
    assert all(name for name, _ in blocks("how-to/testing.md"))
    names: dict[str, Any] = {}
    exec(compile(as_shared((ROOT / "docs/examples/cookbook/test_reminders.py").read_text()), "test_reminders.py", "exec"), names)
    names["test_reminder_comes_after_a_month"]()
