"""Maintenance settings as they are stored: a former release reads what this one stores, and this one what a former one stored."""

from __future__ import annotations

from shared.maintenance.settings import FleetMaintenance
from shared.maintenance.stored_settings import read_parts, stored_parts

FORMER = {
    "lead": "PT30S",
    "leads": {},
    "require_central": False,
    "transport": "relay",
    "catch_up": "PT10M",
    "quorum": {"per": "location", "domains_down": 1},
    "rules": [],
}
"""The part `maintenance` of a definition that the release 0.1.0 stored."""


def test_a_definition_of_a_former_release_has_the_former_behaviour() -> None:
    assert read_parts({"maintenance": FORMER}) == FleetMaintenance()
    assert read_parts({}) == FleetMaintenance()


def test_usual_settings_are_stored_as_a_former_release_does() -> None:
    assert stored_parts(FleetMaintenance()) == {"maintenance": FORMER}


def test_fields_that_a_former_release_refuses_are_in_a_part_that_it_ignores() -> None:
    settings = FleetMaintenance.model_validate({"silence": "PT2M", "early": True})
    parts = stored_parts(settings)
    assert parts == {"maintenance": FORMER | {"early": True}, "maintenance_added": {"silence": "PT2M"}}
    assert read_parts(parts) == settings


def test_a_former_release_applies_early_rules_as_ordinary_ones() -> None:
    rule = {"type": "Redeploy", "action": "prepare"}
    settings = FleetMaintenance.model_validate({"rules": [rule | {"early": True}]})
    parts = stored_parts(settings)
    assert parts["maintenance"]["rules"] == [rule]
    assert read_parts(parts) == settings


def test_the_guard_of_a_definition_is_stored_where_a_former_release_ignores_it() -> None:
    settings = FleetMaintenance.model_validate({"guard": "prepare"})
    parts = stored_parts(settings)
    assert parts == {"maintenance": FORMER, "maintenance_added": {"guard": "prepare"}}
    assert read_parts(parts) == settings
    assert read_parts({"maintenance": FORMER}).guard == "approve"
