"""The table of maintenance's alarms and its page."""

from __future__ import annotations

import re

from shared.maintenance.service.alarms import ALARMS, kind_of
from tests.paths import ROOT


def test_the_page_lists_every_alarm_and_no_other() -> None:
    page = (ROOT / "docs" / "explain" / "maintenance.md").read_text()
    [listed] = re.findall(r"^Alarms: (.+)\.$", page, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", listed)) == sorted(ALARMS)


def test_a_place_may_follow_the_kind_of_an_alarm() -> None:
    assert (kind_of("domains-down zone 1"), kind_of("silent")) == ("domains-down", "silent")
