"""The deprecated former name of `tocsin.extras.emulator`. The next version removes it."""

from __future__ import annotations

import warnings

from .extras.emulator import BadScenario, Emulator, Scenario, load, scenario_of

__all__ = ["BadScenario", "Emulator", "Scenario", "load", "scenario_of"]

_MESSAGE = "tocsin.emulator is now tocsin.extras.emulator; the next version removes the former name"
warnings.warn(_MESSAGE, DeprecationWarning, stacklevel=2)
