"""Log lines of the devhost, its worker processes included."""

import logging
import sys


def set_up_logging(level: str) -> None:
    """Log to standard error from `level` on; libraries from WARNING on."""
    form = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    logging.basicConfig(level=level, format=form, datefmt="%H:%M:%S", stream=sys.stderr)
    for noisy in ("azure", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
