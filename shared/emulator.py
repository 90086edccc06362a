"""The former name of `tocsin.extras.emulator`; it goes in the next version."""

from __future__ import annotations

import warnings

from .extras.emulator import BadScenario, Emulator, Scenario, load, scenario_of

__all__ = ["BadScenario", "Emulator", "Scenario", "load", "scenario_of"]

warnings.warn("tocsin.emulator is now tocsin.extras.emulator; the former name goes in the next version", DeprecationWarning, stacklevel=2)
