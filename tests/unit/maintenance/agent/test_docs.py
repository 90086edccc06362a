"""docs/reference explains every setting of the agent and every line of its log."""

from __future__ import annotations

import re
import tomllib

from devhost.pages import log_lines
from tests.paths import ROOT
from tests.unit.maintenance.agent.config.test_config import FULL

REFERENCE = ROOT / "docs" / "reference"
AGENT = ROOT / "shared" / "maintenance" / "agent"


def table(page: str, heading: str) -> set[str]:
    """The names in backticks in the first column of the tables under a heading."""
    text = (REFERENCE / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_action_that_the_agent_logs_is_known_to_the_page_of_log_actions() -> None:
    sources = [*AGENT.rglob("*.py"), ROOT / "shared" / "cli" / "node" / "agent.py"]
    logged = {action for path in sources for action in re.findall(r'"(agent_[a-z_]+)"', path.read_text())}
    assert "agent_prepared" in logged and logged == {line.action for line in log_lines.lines() if line.action.startswith("agent_")}


def test_every_setting_is_explained() -> None:
    settings = tomllib.loads(FULL)
    whole = {"state", "rules", "recipe", "hooks"}
    known = {f"{section}.{key}" for section in set(settings) - whole for key in settings[section]} | whole
    documented = table("agent.md", "The file")
    assert known <= documented
    assert documented - known == {"app.tenant", "health.enabled"}
