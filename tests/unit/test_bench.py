"""The benchmarks use parts of the product that nothing else does; that they can still be loaded is all that is tested of them."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bench


@pytest.mark.parametrize("name", sorted(each.name for each in pkgutil.iter_modules(bench.__path__)))
def test_part_of_the_benchmarks_loads(name: str) -> None:
    importlib.import_module(f"bench.{name}")
