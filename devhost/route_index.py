"""Writes shared/extras/route_index.py, which the Functions host indexes, from the routes: `python -m devhost.route_index`."""

from __future__ import annotations

from devhost.azurite import ROOT
from shared.extras.parts import index_routes

INDEX = ROOT / "shared" / "extras" / "route_index.py"

_HEAD = '''"""The index of the routes, by which the host finds the HTTP functions before any handler is imported.

`make routes` writes this file from the handlers' declarations: edit those.
"""

from __future__ import annotations

from typing import Final

from ..web.indexed import Indexed

INDEX: Final = (
'''


def text() -> str:
    """Return the module."""
    lines = [f"    Indexed({', '.join(map(_literal, each))}),\n" for each in index_routes()]
    return f"{_HEAD}{''.join(lines)})\n"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"({''.join(f'{_literal(each)}, ' for each in value).rstrip() if len(value) == 1 else ', '.join(map(_literal, value))})"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


if __name__ == "__main__":
    INDEX.write_text(text(), encoding="utf-8")
    print(f"{INDEX} is written.")
