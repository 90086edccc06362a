"""Compares the functions that the host was given with those that the settings demand.

They differ if a setting of the app is newer than the deployed package, or if a setting of the host disables a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..core.settings import Settings
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, SECOND
from .parts import Part, schedules_of
from .timers import SCHEDULES, SOON_FUNCTION

# Where a dot cannot stand in a variable's name, the host takes two underscores.
_DISABLED: Final = re.compile(r"AzureWebJobs(?:\.|__)([A-Za-z0-9_]+?)(?:\.|__)Disabled", re.IGNORECASE)


def disabled(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the functions that settings of the host disable."""
    found = ((_DISABLED.fullmatch(name), value) for name, value in environment.items())
    return frozenset(match[1].lower() for match, value in found if match and value.strip().lower() in ("true", "1"))


class GivenFunctions:
    """The functions that the worker has given to the host, and the ones of them that are disabled."""

    def __init__(self, names: Iterable[str], environment: Mapping[str, str], parts: Sequence[Part]) -> None:
        """names: none if the worker has not listed them; nothing is judged then. environment: the variables of this process. parts: those
        of the application."""
        self._names, self._disabled = frozenset(names), disabled(environment)
        self._clocks = {*SCHEDULES, *schedules_of(parts, environment)}

    def fault(self, settings: Settings, *, second: bool) -> str:
        """Return the sentence that says which demanded functions do not run; '' if all do.

        second: judge for the side of the second account. A function of the other side may be disabled, because the host cannot listen to an
        account that is lost; it must be there nevertheless, for the time after a failover.
        """
        if not self._names:
            return ""
        queues = {name for name, *_ in QUEUE_FUNCTIONS} | {SOON_FUNCTION}
        ends = ("", SECOND) if settings.mirrored else ("",)
        demanded = self._clocks | {name + end for name in queues for end in ends}
        if missing := sorted(demanded - self._names):
            return f"The deployed package lacks functions that the settings demand: {', '.join(missing)}. Deploy the package again."
        own = self._clocks | {name + (SECOND if second else "") for name in queues}
        if off := sorted(own & self._disabled):
            settings_of = ", ".join(f"AzureWebJobs.{name}.Disabled" for name in off)
            return f"Settings of the host disable functions that must run: {', '.join(off)}. Remove {settings_of}."
        return ""
