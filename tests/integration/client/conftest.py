"""The devhost with Azurite, a tenant per test, and the name `tocsin` for what is `shared` here."""

from __future__ import annotations

from pathlib import Path

import pytest

from devhost.azurite import ROOT
from tests.integration.scheduler.conftest import environment, receiver, system, tenant

__all__ = ["environment", "receiver", "system", "tenant"]

EXAMPLES = ROOT / "docs" / "examples"


@pytest.fixture(scope="session")
def as_installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH in which the package goes by the name it is installed under."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "tocsin").symlink_to(ROOT / "shared")
    return folder
