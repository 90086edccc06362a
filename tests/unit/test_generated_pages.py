"""The lists of commands, metrics and stored rows in docs/reference are generated from the code."""

from __future__ import annotations

import pytest

from devhost.pages import command, generated_blocks, metrics, stored_rows


@pytest.mark.parametrize("generator", [command, metrics, stored_rows], ids=["command", "metrics", "stored rows"])
def test_page_is_the_generated_one(generator: object) -> None:
    assert generator.PAGE.read_text() == generator.page(), "run `make reference`"  # type: ignore[attr-defined]


def test_every_metric_to_check_exists() -> None:
    page = metrics.PAGE.read_text()
    assert [name for name in metrics.CHECK if f"- `{name}`: " not in page] == []


def test_a_block_is_replaced_between_its_marks_and_a_missing_one_is_an_error() -> None:
    text = "before\n<!-- list -->\nold\n<!-- end -->\nafter\n"
    made = generated_blocks.update(text, {"list": "- new\n"})
    assert made == "before\n<!-- list -->\n\n- new\n\n<!-- end -->\nafter\n" == generated_blocks.update(made, {"list": "- new"})
    with pytest.raises(ValueError, match="no block 'other'"):
        generated_blocks.update(text, {"other": ""})
