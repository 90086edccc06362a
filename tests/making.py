"""Runs targets of the Makefile as a developer does, without the set-up, which a test has had already."""

from __future__ import annotations

import os
import re

_SET_BY_CALLERS = re.compile(r"MAKE|MFLAGS|ARGS$|JOBS$|SEEDS$|(RECEIVER_|RECEIVER_TLS_)?PORT$|AZURITE|HOST_|SPLIT$|TOKENS$")
"""Variables that a run of `make test` hands on, and those that choose ports and storage."""


SETUPS = ("setup", "setup-run", "setup-docs", "setup-audit")
"""Targets that set up what the others need."""


def make_command(target: str, arguments: str = "") -> list[str]:
    """Return the command line of a target. arguments: the variable ARGS.

    Only `setup` sets anything up: in a copy whose .venv is a link, it would replace the link.
    """
    without = [] if target == "setup" else [f"--assume-old={each}" for each in SETUPS]
    return ["make", "--no-print-directory", *without, target, f"ARGS={arguments}"]


def make_environment(**more: str) -> dict[str, str]:
    """Return the environment of this test without what an outer `make` and its user have set."""
    return {name: value for name, value in os.environ.items() if not _SET_BY_CALLERS.match(name)} | more
