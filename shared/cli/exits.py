"""Exit codes of `tocsin`. They are stable, so that scripts may depend on them.

`tocsin checkpoint run` and `tocsin locks run` end with the exit code of their command, and reserve 120 to 127 for themselves, as `timeout`
and the shell do.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command of `tocsin`."""

    OK = 0
    """The command did its work."""
    FAILED = 1
    """The command failed and standard error says why, or it found faults (rejected lines, `doctor`, `status --check`)."""
    USAGE = 2
    """The command line, a setting or a file given to it is wrong; nothing was done."""
    REFUSED = 3
    """The app refused: the key is not valid, the key lacks a scope, or the name does not exist."""
    UNREACHABLE = 4
    """The app did not answer, or something other than the app answered."""

    NO_TURN = 120
    """checkpoint run: no turn came within `--wait` seconds; locks run: nor the lock. The command was not started."""
    NOT_PUBLISHED = 121
    """checkpoint run: the command did its work, but its checkpoint was not published: it came too late, or the app did not answer."""
    REVOKED = 122
    """checkpoint run: an operator revoked the turn; the command was ended."""
    PROMOTED = 123
    """checkpoint run: this replica has become the primary; the command was ended."""
    LIMIT = 124
    """checkpoint run: the turn's time was over; locks run: the lock was lost. The command was ended."""
    BROKEN = 125
    """`tocsin` itself failed, or a signal ended it (then 128 + its number). The command no longer runs."""
    NOT_RUNNABLE = 126
    """The command exists but cannot be run."""
    NOT_FOUND = 127
    """The command does not exist."""


SIGNALLED = 128
"""Added to a signal's number: the signal ended the command, or `tocsin` itself."""
