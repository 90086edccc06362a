"""`python -m devhost.demo.child MODULE ARGUMENTS`: runs a module as a program, and tells it to end (SIGTERM) when its standard input ends.

Whoever holds the other end of that pipe is not outlived, not even when it is killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """The command."""
    del sys.argv[0]
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
