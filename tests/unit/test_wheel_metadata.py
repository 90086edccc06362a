"""The description of the wheel: README.md, whose links to files of the repository lead to the repository."""

from __future__ import annotations

import pytest

from devhost.dependencies.wheel_metadata import absolute_links

HOME = "https://git.example.org/a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [the API](docs/api.md#paths).", f"see [the API]({HOME}/blob/main/docs/api.md#paths)."),
        ("![Parts](docs/img/parts.svg)", f"![Parts]({HOME}/raw/main/docs/img/parts.svg)"),
        ("[![Parts](a.png)](./a.md)", f"[![Parts]({HOME}/raw/main/a.png)]({HOME}/blob/main/a.md)"),
        ('<img alt="a" src="docs/a.png">', f'<img alt="a" src="{HOME}/raw/main/docs/a.png">'),
        ("[limits](#limits) [a](https://b.example/c.md) <https://b.example>", None),
    ],
)
def test_links_to_files_of_the_repository_become_absolute(text: str, expected: str | None) -> None:
    assert absolute_links(text, HOME) == (text if expected is None else expected)
