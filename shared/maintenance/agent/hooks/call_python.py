"""Calls a Python hook in a process of its own: `python -P call_python.py module:function [folder]`, with the event as JSON on stdin.

It is run by its path and imports nothing of this package, so that a hook starts fast.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(where: str, folder: str = "") -> int:
    """Call the function and return the exit code: 1 if it returns False, else 0. An exception ends the process with a traceback."""
    if folder:
        sys.path.insert(0, folder)
    module, _, name = where.partition(":")
    function = getattr(importlib.import_module(module), name)
    return 1 if function(json.load(sys.stdin)) is False else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
