"""The names that the code reads, stores and exports: infra/ has to agree with them."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from devhost.pages.log_actions import levels
from devhost.pages.log_lines import lines
from shared.app.timers import PERIODS
from shared.core.settings import env_name
from shared.extras.parts import SETTINGS
from shared.fleets.watch.alarms import ALARMS, KINDS
from shared.maintenance.service.alarms import ALARMS as MAINTENANCE_ALARMS
from shared.storage import names
from shared.storage.several.tables import SpreadTables
from tests.paths import ROOT
from tests.unit.test_log_actions import actions

FORBIDDEN = frozenset({"TZ", "WEBSITE_TIME_ZONE", "FUNCTIONS_WORKER_RUNTIME", "FUNCTIONS_EXTENSION_VERSION", "WEBSITE_RUN_FROM_PACKAGE"})
"""Settings that Flex Consumption does not take, or that break it."""

READ_ELSEWHERE = {
    "AzureWebJobsStorage__blobServiceUri": "the Functions host: locks of timers, and the deployed package",
    "AzureWebJobsStorage__credential": "the same",
    "AzureWebJobsStorage__clientId": "the same",
    "TocsinStorage__credential": "the Functions host: it listens to the queues",
    "TocsinMirror__credential": "the same, for those of the second account",
    "APPLICATIONINSIGHTS_CONNECTION_STRING": "the host and the worker: where telemetry goes",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING": "the same: as whom",
    "OTEL_TRACES_SAMPLER": "the OpenTelemetry SDK: which requests are traced",
    "OTEL_TRACES_SAMPLER_ARG": "the same: their share",
    "AzureWebJobsDisableHomepage": "the host: without it, / is a page of 150 kB for anyone",
}
"""Settings that the app's code does not read, with their readers."""

LEFT_OUT = {
    "TocsinStorage": "no connection string: the app comes as its identity",
    "TocsinMirror": "the same",
    "TOCSIN_MIRROR_STOP_SECONDS": "the default; both figures change together, with nobody serving",
    "TOCSIN_MIRROR_TAKE_SECONDS": "the same",
    "TOCSIN_LOCAL": "for the emulator only",
    "TOCSIN_RECEIVER": "the same",
    "TOCSIN_BIGBEN_OPEN": "the same",
    "TOCSIN_EGRESS_PLAIN": "off: an operator who needs it says so by hand",
    "TOCSIN_KAFKA_POLL_SECONDS": "the default fits the timer's period",
    "TOCSIN_BUCKET_SECONDS": "one figure only",
    "TOCSIN_SHARD_EVENTS": "the default fits a storage transaction and a page",
    "TOCSIN_SHARD_BYTES": "the same",
    "TOCSIN_DELIVER_CONCURRENCY": "the default",
    "TOCSIN_TENANT_CONCURRENCY": "the same",
    "TOCSIN_EXPRESS_EVENTS": "the same",
    "TOCSIN_KEEP_ANSWERS": "the same",
    "TOCSIN_TRACE": "off, unless an operator asks for it with `furtherSettings`",
    "TOCSIN_PUBLIC_URL": "the host's own name, unless an operator has another domain",
    "WEBSITE_HOSTNAME": "the platform sets it",
    "IDENTITY_ENDPOINT": "the same",
    "IDENTITY_HEADER": "the same",
    "TOCSIN_TARGET_CONCURRENCY": "the same",
    "TOCSIN_OWNERS": "what host.json lets in",
    "TOCSIN_WAKES": "`auto` fits Flex Consumption",
    "TOCSIN_ARM_API_VERSION": "the default is the version whose definition was read",
}
"""Settings that the code reads and Bicep leaves at their default -> why."""


def settings_read() -> set[str]:
    """Every setting of the app and its parts, by its name in the environment."""
    return {env_name(name, kind) for kind in SETTINGS for name in kind.model_fields}


def tables() -> set[str]:
    """The tables of the home account."""
    return set(names.ALL_TABLES)


def queues() -> set[str]:
    """The queues of the home account, with those for what failed five times."""
    return {*names.ALL_QUEUES, *names.POISON_QUEUES}


def readers_of_the_environment() -> dict[str, set[str]]:
    """Files of the service that look into the environment -> what they say there, as source."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "function_app.py", *sorted((ROOT / "shared").rglob("*.py"))):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "environ" in source or "getenv" in source else ():
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv"):
                found.setdefault(path.relative_to(ROOT).as_posix(), set())
            match node:
                case ast.Call(ast.Attribute(ast.Attribute(ast.Name("os"), "environ"), "get"), [name, *_]):
                    found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(ast.unparse(name))
    return found


class _Asked:
    """A tables port that only notes what it is asked to make."""

    def __init__(self) -> None:
        self.made: set[str] = set()

    async def ensure(self, asked: Sequence[str]) -> None:
        """Note it."""
        self.made |= set(asked)


@cache
def shard_tables() -> frozenset[str]:
    """The tables of a further account: those that the code itself creates there if the deployment does not."""
    home, further = _Asked(), _Asked()
    spread = SpreadTables(cast(Any, home), {"0": cast(Any, home), "1": cast(Any, further)})
    asyncio.run(spread.ensure(names.ALL_TABLES))
    return frozenset(further.made)


@dataclass(frozen=True)
class Observable:
    """Return the metrics that alerts and charts may use."""

    metrics: frozenset[str]
    actions: frozenset[str]
    spans: frozenset[str]
    alarms: frozenset[str]
    timers: frozenset[str]


@cache
def observable() -> Observable:
    """All that the code exports or logs, by name. Metrics are those of `/api/metrics`, counters without the `_total` of its text."""
    sources = {path: text for path in (ROOT / "shared").rglob("*.py") if '"action"' in (text := path.read_text())}
    families = (ROOT / "shared" / "ops" / "metrics" / "families.py").read_text()
    telemetry = (ROOT / "shared" / "delivery" / "tracing.py").read_text()
    logged = {action for source in sources.values() for action in (*actions(source), *re.findall(r'"action": "([a-z_.-]+)"', source))}
    # Lines are exported from INFO on.
    logged -= {action for action, level in levels(lines()).items() if level == "debug"}
    return Observable(
        frozenset(re.findall(r'MetricFamily\(\s*"(tocsin_[a-z_]+)"', families)),
        frozenset(logged | {alarm.action for alarm in ALARMS.values()}),
        frozenset(re.findall(r'"(tocsin\.[a-z_]+)"', telemetry)),
        frozenset({*MAINTENANCE_ALARMS, *KINDS}),
        frozenset(PERIODS),
    )
