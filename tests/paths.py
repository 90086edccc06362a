"""The folder of the repository, and its pages."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def docs_pages() -> list[Path]:
    """Return the pages of docs/ in order, without those that npm writes into the folders of examples."""
    return sorted(page for page in (ROOT / "docs").rglob("*.md") if "node_modules" not in page.parts)
