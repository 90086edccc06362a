"""`python -m devhost.demo.child MODULE ARGUMENTS`: run a module as a program, and end it (SIGTERM) when its standard input ends.

So the program never outlives the process that holds the other end of that pipe, even if that process is killed.
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
    """Run the command."""
    del sys.argv[0]
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
