"""The console script `tocsin`: loads the command, which takes a tenth of a second, and runs it."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line of this process, and exit."""
    heeded = signal.getsignal(signal.SIGINT)
    if heeded is signal.default_int_handler:
        # Nothing is begun yet: Ctrl-C ends it as the system does, not in the middle of an import's traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .exits import SIGNALLED
    from .main import main

    try:
        signal.signal(signal.SIGINT, heeded)
        main()
    except KeyboardInterrupt:
        # Before the command itself heeded it, or after.
        sys.exit(SIGNALLED + signal.SIGINT)
