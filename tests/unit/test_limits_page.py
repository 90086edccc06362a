"""docs/reference/limits.md is generated from the constants of the code."""

from __future__ import annotations

from devhost.pages import limits
from devhost.pages.limits import REFUSALS, bound
from shared.delivery.entra.grants import MOST_AUDIENCES, MOST_HOSTS
from shared.leases.protocol.http_servers import MAX_SERVERS
from shared.maintenance.rows import MAX_NODES
from shared.tenants.model import MOST_AGENTS, MOST_SERVERS, Limits, Retry


def test_page_is_the_generated_one() -> None:
    assert limits.PAGE.read_text() == limits.page(), "run `make reference`"


def test_defaults_that_the_page_names_once_are_the_same() -> None:
    assert (MOST_SERVERS, MOST_AGENTS) == (MAX_SERVERS, MAX_NODES), "the protocols' defaults are the tenants'"
    assert MOST_AUDIENCES == MOST_HOSTS


def test_every_default_of_a_tenant_with_a_highest_value_is_on_the_page() -> None:
    schemas = Limits.model_json_schema()["properties"]
    assert set(REFUSALS) == {name for name, schema in schemas.items() if "by default" in schema.get("description", "")}


def test_a_bound_is_found_below_the_parts_of_a_type() -> None:
    assert bound(Retry, "attempts", "maximum") == 100
