"""Exit codes of `tocsin`: stable, so that scripts may rest on them.

`tocsin checkpoint run` ends with its command's own code, and keeps 120 to 127 for itself, as `timeout` and the shell do.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command of `tocsin` ended."""

    OK = 0
    """Done."""
    FAILED = 1
    """It did not work; standard error says why. Or: what was looked at has faults (rejected lines, `doctor`, `status --check`)."""
    USAGE = 2
    """The command line, a setting or a file given to it is wrong; nothing was done."""
    REFUSED = 3
    """The app said no: a key that is not valid, a scope that lacks, a name that is not there."""
    UNREACHABLE = 4
    """No answer came from the app, or one that is none of its own."""

    NO_TURN = 120
    """checkpoint run: no turn came in the time that `--wait` gives. The command was not started."""
    NOT_PUBLISHED = 121
    """checkpoint run: the command did its work, but its checkpoint was not published: it came too late, or nobody answered."""
    REVOKED = 122
    """checkpoint run: an operator took the turn back; the command was ended."""
    PROMOTED = 123
    """checkpoint run: this replica has become the primary; the command was ended."""
    LIMIT = 124
    """checkpoint run: the turn's time was over; the command was ended."""
    BROKEN = 125
    """checkpoint run: `tocsin` itself failed, or was told to end (then 128 + the signal's number); no command runs any more."""
    NOT_RUNNABLE = 126
    """checkpoint run: the command is there, but cannot be run."""
    NOT_FOUND = 127
    """checkpoint run: there is no such command."""


SIGNALLED = 128
"""Plus the signal's number: a signal ended the command, or `tocsin` itself."""
