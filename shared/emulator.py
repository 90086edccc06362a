"""The deprecated former name of `tocsin.extras.emulator`. The next version removes it."""

from __future__ import annotations

import importlib
import os
import warnings

from .extras.emulator import BadScenario, Emulator, Scenario, load, scenario_of

__all__ = ["BadScenario", "Emulator", "Scenario", "load", "scenario_of"]

_MESSAGE = "tocsin.emulator is now tocsin.extras.emulator; the next version removes the former name"
# The warning names the line that uses the name, also when this package or importlib loads the module on that line's behalf.
_LOADERS = tuple(os.path.dirname(file) + os.sep for file in (__file__, importlib.__file__))
warnings.warn(_MESSAGE, DeprecationWarning, stacklevel=2, skip_file_prefixes=_LOADERS)
