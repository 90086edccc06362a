"""The levels from which the host logs."""

from __future__ import annotations

import logging

import orjson
import pytest

from shared.ops.export.host_log import CONSOLE, LEVELS, OVERRIDE, log_levels, lowest_level
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("category", "level"),
    [
        ("Azure.Core", "error"),
        ("Azure.Core.Shared", "error"),
        ("azure.identity", "none"),
        ("Other", "warning"),
        ("Default.Other", "warning"),
    ],
)
def test_the_longest_name_that_begins_the_category_decides_in_any_case(category: str, level: str) -> None:
    host = {"logging": {"logLevel": {"Default": "Warning", "Azure": "None", "Azure.Core": "Error", "Other": "Loud"}}}
    assert lowest_level(log_levels(host, {}), category) == LEVELS[level]


def test_a_host_without_levels_logs_from_information_on() -> None:
    assert lowest_level(log_levels({}, {}), CONSOLE) == logging.INFO


def test_app_settings_override_the_file() -> None:
    host = {"logging": {"logLevel": {"Function": "Warning", CONSOLE: "Information"}}}
    levels = log_levels(host, {f"{OVERRIDE}function": "Debug", f"{OVERRIDE.upper()}{CONSOLE}": "Error", "OTHER": "None"})
    assert (lowest_level(levels, "Function.sweep.User"), lowest_level(levels, CONSOLE)) == (logging.DEBUG, logging.ERROR)


def test_the_apps_own_file_shows_what_is_printed_and_only_warnings_of_functions() -> None:
    levels = log_levels(orjson.loads((ROOT / "host.json").read_bytes()), {})
    assert (lowest_level(levels, "Function.sweep.User"), lowest_level(levels, CONSOLE)) == (logging.WARNING, logging.INFO)
