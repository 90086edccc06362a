"""Generated blocks of a page, from `<!-- NAME -->` to `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .log_lines import ROOT

REFERENCE = ROOT / "docs" / "reference"


def update(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with its blocks replaced. Raises ValueError if it lacks one."""
    for name, block in blocks.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"the page has no block {name!r}")
        text = pattern.sub(lambda found, block=block: f"{found[1]}\n{block.strip()}\n\n{found[2]}", text)  # type: ignore[misc]
    return text
