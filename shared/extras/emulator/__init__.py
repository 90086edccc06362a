"""An emulator of Azure's Instance Metadata Service with Scheduled Events, to rehearse one's hooks and to test agents.

    scenario     files: which machines, and what befalls them when
    model        the world as values
    rules        what happens by itself; `steps` what scenarios and control make happen; `asking` what machines are answered
    documents    the service's words, by api-version
    service      the world with a clock and its doors (`front`); `views` the same as JSON

docs/reference/emulator.md says how to use it, and what Azure's documents leave open. Needs aiohttp (the package's extra `testing`).
"""

from __future__ import annotations

from ...core.optional import missing_extra

try:
    from .service import Emulator
except ModuleNotFoundError as missing:
    raise missing_extra("tocsin.emulator", missing) from missing
from .scenario import BadScenario, Scenario, load, scenario_of

__all__ = ["BadScenario", "Emulator", "Scenario", "load", "scenario_of"]
