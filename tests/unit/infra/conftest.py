"""The files of infra/, read once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from .snapshots import INFRA

READ = (".bicep", ".json", ".yaml", ".sh", ".toml")


@pytest.fixture(scope="session")
def sources() -> Mapping[str, str]:
    """Path relative to infra/ -> text."""
    return {path.relative_to(INFRA).as_posix(): path.read_text() for path in sorted(INFRA.rglob("*")) if path.suffix in READ}
