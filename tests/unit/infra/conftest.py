"""The files of infra/, read once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from .facts import ROOT

READ = (".bicep", ".json", ".yaml", ".sh", ".toml")


@pytest.fixture(scope="session")
def sources() -> Mapping[str, str]:
    """Path relative to infra/ -> text."""
    infra = ROOT / "infra"
    return {path.relative_to(infra).as_posix(): path.read_text() for path in sorted(infra.rglob("*")) if path.suffix in READ}
