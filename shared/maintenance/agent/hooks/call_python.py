"""Calls a Python hook in a process of its own: `python -P call_python.py module:function [folder]`, with the event as JSON on stdin.

Run by its path and free of imports of ours, so that a hook pays for nothing that it does not use.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(where: str, folder: str = "") -> int:
    """Exit code of the call: 0, or 1 where the function returns False. What it raises ends the process with a traceback."""
    if folder:
        sys.path.insert(0, folder)
    module, _, name = where.partition(":")
    function = getattr(importlib.import_module(module), name)
    return 1 if function(json.load(sys.stdin)) is False else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
