"""An emulator of Azure's Instance Metadata Service with Scheduled Events, to rehearse hooks and to test agents.

    scenario          reads scenario files: machines, and steps with their times
    model             the emulated world as values
    rules             changes of the world that happen with time
    steps             changes that scenarios and the control API ask for
    transitions       small changes that both share
    metadata_service  answers machines' requests
    documents         documents of the metadata service, by api-version
    service           the emulator: the world with a clock and its HTTP servers
    http_server       the HTTP servers of machines and of the control API
    views             the world as JSON
    screen            the world as a table on a terminal
    command           runs `tocsin imds-emulator`

docs/reference/emulator.md explains how to use it, and what Azure's pages leave open. Needs aiohttp (the package's extra `testing`).
"""

from __future__ import annotations

from ...core.errors import missing_extra

try:
    from .service import Emulator
except ModuleNotFoundError as missing:
    raise missing_extra("tocsin.extras.emulator", missing) from missing
from .scenario import BadScenario, Scenario, load, scenario_of

__all__ = ["BadScenario", "Emulator", "Scenario", "load", "scenario_of"]
