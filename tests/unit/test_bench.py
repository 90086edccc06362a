"""The benchmarks use parts of the product that nothing else uses. Their modules load; nothing else of them is tested."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bench

MODULES = sorted(each.name for each in pkgutil.walk_packages(bench.__path__, "bench."))


def test_modules_of_every_folder_are_found() -> None:
    assert {"bench.bodies", "bench.events.singles", "bench.leases.azurite", "bench.tools.stage"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_part_of_the_benchmarks_loads(name: str) -> None:
    importlib.import_module(name)
