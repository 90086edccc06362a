"""The libraries that the package imports are declared by the package, not only by the libraries that it depends on."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.paths import ROOT

# Their types are part of the interface of the library on the right, which requires them.
PARTS = {"multidict": "aiohttp", "yarl": "aiohttp", "pydantic_core": "pydantic"}


def imported() -> set[str]:
    """Return the top-level packages that the modules of `shared` import, without the standard library."""
    found = set()
    for path in (ROOT / "shared").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names


def declared() -> set[str]:
    """Return the distributions that the package and its extras name, in the spelling of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for each in (project["dependencies"], *project["optional-dependencies"].values()) for line in each]
    return {re.match(r"[a-z-]+", line)[0] for line in lines}  # type: ignore[index]


def test_every_imported_library_is_a_declared_dependency() -> None:
    owners = packages_distributions()
    packages = {PARTS.get(package, package) for package in imported()}
    assert {"httpx", "pydantic", "typing_extensions"} <= packages
    names = {package: {name.lower().replace("_", "-") for name in owners.get(package, ())} for package in packages}
    assert {package for package, distributions in names.items() if not distributions & declared()} == set()
