"""A process as it is deployed imports little until it has served its first queue message."""

from __future__ import annotations

from pathlib import Path

from bench.cold.stages import measure

MOST = 200
"""Modules on top of the floor, those of the standard library and of other packages included."""


async def test_a_process_imports_few_modules_until_its_first_message_is_served(tmp_path: Path) -> None:
    found = await measure(tmp_path, 1, lambda line: None, ("queue",))
    packages = {name: modules for name, (modules, _) in found["queue"].packages.items()}
    assert found["queue"].modules <= MOST, f"{found['queue'].modules} modules: {packages}"
