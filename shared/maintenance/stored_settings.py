"""Stores the maintenance settings of a fleet's definition in two parts, so that former releases can read the definition.

A former release refuses a definition whose part `maintenance` has a field that it does not know, and ignores other parts. So fields that
were added since are in a part of their own. A field that is left out has its default: a fleet stored without a guard has `approve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .settings import FleetMaintenance

PART: Final = "maintenance"
ADDED_PART: Final = "maintenance_added"
_FORMER: Final = frozenset({"lead", "leads", "require_central", "transport", "catch_up", "quorum", "early", "rules"})
"""The fields that the release 0.1.0 knows."""


def stored_parts(settings: FleetMaintenance) -> dict[str, Any]:
    """Return the parts of a stored definition."""
    shown = settings.model_dump(mode="json")
    added = {name: value for name, value in shown.items() if name not in _FORMER}
    former = {name: value for name, value in shown.items() if name in _FORMER}
    if any(rule.early for rule in settings.rules):
        # A former release applies these rules without `early`.
        former["rules"] = [{name: value for name, value in rule.items() if name != "early"} for rule in shown["rules"]]
        added["rules"] = shown["rules"]
    return {PART: former} | ({ADDED_PART: added} if added else {})


def read_parts(rest: Mapping[str, Any]) -> FleetMaintenance:
    """Return the settings from the parts of a stored definition."""
    return FleetMaintenance.model_validate({**rest.get(PART, {}), **rest.get(ADDED_PART, {})})
