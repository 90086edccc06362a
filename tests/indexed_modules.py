"""The modules that indexing the app imports: tests/data/indexed_modules.txt, one module of the app or package of others a line.

A process that is started for one queue message imports all of it first, so nothing stands here that such a process does not need. What
only calls, timers or some settings need is imported where it is used. `python -m tests.indexed_modules` writes the file.
"""

from __future__ import annotations

import os
import subprocess
import sys

from .paths import ROOT

FILE = ROOT / "tests" / "data" / "indexed_modules.txt"

_CHILD = """
import sys
import azure.functions, azure.identity.aio, azure_functions_runtime, pydantic_settings
floor = set(sys.modules)
import function_app
function_app.app.get_functions()
print("\\n".join(sorted(set(sys.modules) - floor)))
"""
"""The floor is what any app imports that has the same worker, models and identity."""


def imported() -> list[str]:
    """Return the modules that indexing imports on top of the floor, in a process of its own, without optional settings."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("TOCSIN_", "Tocsin", "OTEL_", "APPLICATIONINSIGHTS_"))
    }
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr)
    return ran.stdout.split()


def listed(modules: list[str]) -> list[str]:
    """Return the lines of the file: each module of the app, and the packages of others."""
    own = [name for name in modules if name.partition(".")[0] in ("function_app", "shared")]
    others = {name.partition(".")[0] for name in modules if name not in own} - set(sys.stdlib_module_names)
    return sorted([*own, *others])


if __name__ == "__main__":
    FILE.write_text("\n".join(listed(imported())) + "\n", encoding="utf-8")
    print(f"{FILE} is written.")
