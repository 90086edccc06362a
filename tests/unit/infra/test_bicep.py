"""infra/ agrees with itself, with what is known of Azure, and with the code."""

from __future__ import annotations

from collections.abc import Mapping

from . import agreement, wholeness  # noqa: F401  (their import has their checks run too)
from .checks import Project, faults


def test_nothing_is_wrong_with_the_bicep_files(sources: Mapping[str, str]) -> None:
    assert faults(Project(sources)) == {}
