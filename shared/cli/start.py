"""The console script `tocsin`: load the command, which takes a tenth of a second, and run it."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line of this process, and exit."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # Nothing has begun yet. Ctrl-C ends the process as the system does: the imports would show a traceback, or lose the
        # KeyboardInterrupt in one of their callbacks.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .exits import SIGNALLED, Exit

    try:
        from .main import main
    except ModuleNotFoundError as missing:
        from ..core.errors import missing_extra

        if (missing.name or "").startswith(__name__.partition(".")[0]):
            raise
        print(f"tocsin: {missing_extra('the command', missing, 'cli')}", file=sys.stderr)
        sys.exit(Exit.USAGE)
    try:
        main(on_loaded=lambda: signal.signal(signal.SIGINT, handler))
    except KeyboardInterrupt:
        # Ctrl-C came before the command handled it, or after.
        sys.exit(SIGNALLED + signal.SIGINT)
