"""The pages about the deployment and docs/explain/security.md keep to what there is: tests, routes, parameters, and figures."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import azure.functions as func

from bench.cost import page, rules
from bench.cost.prices import Prices
from shared.app.triggers import queue_functions, timer_functions
from shared.extras.parts import build_routes
from tests.paths import ROOT, docs_pages

from .snapshots import FIRST, RULES, alarms, deployed, parameters
from .test_triggers import no_app

DEPLOY = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
DEPLOYMENT = (ROOT / "docs" / "reference" / "deployment.md").read_text()
SECURITY = (ROOT / "docs" / "explain" / "security.md").read_text()


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", SECURITY)
    assert len(named) > 40
    missing = [f"{path}::{test}" for path, test in named if not re.search(rf"def {test}\(", (ROOT / path).read_text())]
    assert missing == []
    paths = re.findall(r"[ |`](tests/[\w/]+(?:\.py)?)[ ,|`:]", SECURITY)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_threat_says_what_shows_its_defence() -> None:
    threats = [row for row in re.findall(r"^\| (.+) \|$", SECURITY, re.MULTILINE) if not row.startswith(("---", "threat |"))]
    assert len(threats) > 25
    assert [row for row in threats if "tests/" not in row.split(" | ")[2]] == []
    assert {"Tenants against each other", "A stranger, or a stolen key", "A hostile target, and SSRF", "Replay and forgery"} <= set(
        re.findall(r"^## (.+)$", SECURITY, re.MULTILINE)
    )


def test_every_path_of_the_deployment_page_is_a_route() -> None:
    templates = {f"/api/{route.template}" for route in build_routes()}
    shapes = {re.sub(r"\{[^}]*\}", "X", template) for template in templates}
    mentioned = set(re.findall(r"(?:\$api|\.\.\.|\$url/api/v1|/api/v1)(/[a-z{}/-]+)", DEPLOY)) - {"/"}
    mentioned = {re.sub(r"/(shop|default|first)(?=/|$)", "/X", re.sub(r"\{[^}]*\}", "X", path)) for path in mentioned}
    assert {path for path in mentioned if f"/api/v1{path}" not in shapes} == set()
    assert len(mentioned) >= 5


def test_every_parameter_is_explained_with_the_name_it_comes_from(sources: Mapping[str, str]) -> None:
    table = DEPLOYMENT.partition("## Parameters")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert explained == set(parameters())
    given = json.loads(sources["main.parameters.json"])["parameters"]
    asked = {name: re.match(r"\$\{(\w+)", str(each["value"])) for name, each in given.items()}
    from_environment = {name: found[1] for name, found in asked.items() if found}
    pairs = (zip(*(re.findall(r"`(\w+)`", cell) for cell in (row[0], row[3])), strict=False) for row in rows)
    assert {name: variable for pair in pairs for name, variable in pair} == from_environment
    assert set(re.findall(r"azd env set (\w+)", DEPLOY + DEPLOYMENT)) <= {"NAME", *from_environment.values()}
    assert set(given) == explained - set(FIRST)


def test_the_figures_of_resources_at_rest_follow_from_what_is_deployed() -> None:
    [rule] = deployed("defaults").of(RULES)
    assert rule["properties"]["evaluationFrequency"] == "PT15M" and "| alert rule | | 0.50 (" in DEPLOYMENT
    endpoint, zone = 7.30, 0.50
    regions, further = 2, 3  # of the snapshot `private`
    network = deployed("private").of("Microsoft.Network/privateEndpoints"), deployed("private").of("Microsoft.Network/privateDnsZones")
    price = len(network[0]) * endpoint + len(network[1]) * zone
    assert f"{price / regions - further * endpoint:.2f}: 4 endpoints" in DEPLOYMENT


def test_the_prices_of_what_is_switched_on_are_those_of_the_cost_page() -> None:
    prices = Prices()
    idle = rules.ready(1, 512, 0.0, prices)
    assert f"from {idle:.2f} and {2 * page.groups() * idle:.2f} |" in DEPLOYMENT
    assert f"| {prices.nat_gateway + prices.public_address:.2f} for each region" in DEPLOYMENT
    cost = (ROOT / "docs" / "how-to" / "what-it-costs.md").read_text()
    assert f"cheaper if it executes over {ready_share(prices)} % of the time" in cost
    assert f"| 5 free GB of logs | -{5 * prices.log_gb:.2f} to " in cost


def ready_share(prices: Prices) -> int:
    return round(100 * rules.ready_pays_from(512, prices))


def test_the_groups_that_the_cost_page_counts_are_those_that_scale_alone() -> None:
    app = func.FunctionApp()
    for blueprint in (queue_functions(no_app), timer_functions(no_app)):
        app.register_functions(blueprint)
    assert page.groups() == 1 + len(app.get_functions())


def test_operators_find_what_to_do_about_every_alert() -> None:
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    assert {name for name in alarms(deployed("defaults")) if f"`{name}`" not in page} == set()


def test_every_alert_has_its_row_in_the_reference_and_asks_for_what_the_row_says() -> None:
    found = alarms(deployed("defaults"))
    table = (ROOT / "docs" / "reference" / "observability.md").read_text().partition("## Alerts")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \|", table, re.MULTILINE))
    assert set(rows) == set(found)
    for name, asks in rows.items():
        named = set(re.findall(r"`([^`]+)`", asks))
        assert named and all(f'"{each}"' in found[name] for each in named), name


def test_functions_that_may_be_always_ready_are_there() -> None:
    named = re.findall(r"function:(\w+)", DEPLOYMENT)
    source = (ROOT / "shared" / "scheduler" / "queue_functions.py").read_text()
    assert named and all(f'"{name}"' in source for name in named)


def test_no_command_of_the_docs_puts_a_secret_into_an_argument() -> None:
    """Other users of a machine can see arguments. The tutorial's keys are the public ones of the emulator."""
    pages = [page for page in docs_pages() if not {"start", "examples"} & set(page.parts)]
    shown = re.compile(r"""-H ["'][Aa]uthorization: Bearer \$|-H "\$admin"|--value ("?\$|NEW)|--key \$""")
    found = [f"{page.name}: {line}" for page in pages for line in page.read_text().splitlines() if shown.search(line)]
    assert not found
