"""The levels from which the Functions host logs the lines of a category: those of host.json and of the app settings that override it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

CONSOLE: Final = "Host.Function.Console"
"""The category of the lines that a worker prints."""
OVERRIDE: Final = "AzureFunctionsJobHost__logging__logLevel__"
"""Prefix of the app settings that override `logging.logLevel` of host.json; the rest of the name is the category."""
LEVELS: Final[Mapping[str, int]] = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
"""Levels of `logging` by .NET's names, in lower case."""
_DEFAULT: Final = "default"


def log_levels(host: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, int]:
    """Return the levels by category, in lower case. host: the document of host.json. Unknown names of levels are left out."""
    of_file = host.get("logging", {}).get("logLevel", {})
    of_settings = {name[len(OVERRIDE) :]: level for name, level in environ.items() if name.lower().startswith(OVERRIDE.lower())}
    found = {name.lower(): str(level).lower() for name, level in [*of_file.items(), *of_settings.items()]}
    return {name: LEVELS[level] for name, level in found.items() if level in LEVELS}


def lowest_level(levels: Mapping[str, int], category: str) -> int:
    """Return the level from which a category is logged: that of the longest name with which the category begins, else the default."""
    names = [name for name in levels if name != _DEFAULT and category.lower().startswith(name)]
    return levels[max(names, key=len)] if names else levels.get(_DEFAULT, logging.INFO)
