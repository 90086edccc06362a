"""Log lines of the devhost."""

import logging
import sys

FORM = "%(asctime)s %(levelname).1s %(name)s: %(message)s", "%H:%M:%S"


def set_up_logging(level: str, handler: logging.Handler | None = None) -> None:
    """Log from `level` on to standard error, or to a handler; libraries from WARNING on."""
    if handler is None:
        logging.basicConfig(level=level, format=FORM[0], datefmt=FORM[1], stream=sys.stderr)
    else:
        logging.basicConfig(level=level, handlers=[handler])
        # The message alone: the reader adds the rest.
        handler.setFormatter(logging.Formatter())
    for noisy in ("azure", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
