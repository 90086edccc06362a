"""tests/data/texts.json holds the texts that tests name, and no others; tests/data/error_texts.json those of all errors in the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shared.web.problem_types import MEANINGS
from tests import error_texts, texts
from tests.texts import FILE, KEY, assert_text, catalogue, named, template


def test_every_text_is_named_by_a_test() -> None:
    assert sorted(catalogue().keys() - named()) == [], "texts that no test names: run `make texts` and review the difference"
    assert [key for key, text in catalogue().items() if not KEY.fullmatch(key) or "/pytest-" in text] == []


def test_file_is_sorted_and_in_the_form_that_is_written() -> None:
    kept = json.loads(FILE.read_text())
    assert FILE.read_text() == json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def test_texts_of_errors_are_those_of_the_source() -> None:
    assert json.loads(error_texts.FILE.read_text()) == json.loads(error_texts.found()), "run `make texts` and review the difference"


def test_every_type_of_problem_has_a_text() -> None:
    made_of_parts = {"already-approved", "fenced", "not-offline", "too-many-nodes", "work-over"}
    assert MEANINGS.keys() - json.loads(error_texts.FILE.read_text()).keys() == made_of_parts


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("lock a1 is free in 12.2 s", {"lock": "a1", "seconds": 12.2}, "lock {lock} is free in {seconds} s"),
        ("0 made, 7 kept, 0 lost", {"made": 0, "kept": 7, "lost": 0}, "{made} made, {kept} kept, {lost} lost"),
        ("1 of 11 servers, 1 left", {"servers": 1}, "{servers} of 11 servers, {servers} left"),
        ("/a/b and /a", {"folder": "/a", "file": "/a/b"}, "{file} and {folder}"),
        ("at least {}: [x]", {"name": "[x]"}, "at least {{}}: {name}"),
    ],
)
def test_values_become_names_and_back(text: str, values: dict[str, object], found: str) -> None:
    assert template(text, values) == found and found.format(**values) == text


def test_another_wording_another_value_an_unused_value_a_missing_one_and_an_unknown_key_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "WRITES", False)
    monkeypatch.setattr(texts, "catalogue", lambda: {"a": "lock {lock} is free"})
    check("a", "lock x is free\n", lock="x")
    for key, text, values in (
        ("a", "lock x is open", {"lock": "x"}),
        ("a", "lock x is free", {"lock": "y"}),
        ("a", "lock x is free", {"lock": "x", "node": "free"}),
        ("a", "lock x is free", {}),
        ("b", "lock x is free", {"lock": "x"}),
    ):
        with pytest.raises(AssertionError, match="make texts"):
            check(key, text, **values)


def test_a_kept_text_replaces_the_former_one_and_those_that_no_test_names_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "texts.json"
    file.write_text(json.dumps({"no" + ".test": "x", "locks.free": "former", "alarm.unserved": "former"}))
    monkeypatch.setattr(texts, "FILE", file)
    monkeypatch.setattr(texts, "_written", {})
    texts.keep("alarm.unserved", "one\ntwo")
    with pytest.raises(AssertionError, match="two texts"):
        texts.keep("alarm.unserved", "three")
    assert json.loads(file.read_text()) == {"alarm.unserved": ["one", "two"], "locks.free": "former"}


check = assert_text
"""The function under another name: its keys here are none of the file."""
