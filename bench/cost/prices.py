"""The table of prices in US dollars and of the numbers in Azure's rules of billing; `--prices FILE` (JSON) replaces some of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Final

AS_OF: Final = "November 2025"
"""The month in which the prices were read."""
_PRICING: Final = "azure.microsoft.com/pricing/details"
_PLAN: Final = "learn.microsoft.com/azure/azure-functions/flex-consumption-plan"


class PriceError(Exception):
    """A file of prices cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices without tax, examples for regions of the United States; Azure's price lists have those of other regions. A month has 30 days.

    Each has its meaning and its source. Free amounts are per subscription and month, and are counted as if nothing else used them.
    """

    gb_second: Annotated[float, "price of a second of 1 GB of an on-demand instance while it executes", f"{_PRICING}/functions"] = 0.000026
    free_gb_seconds: Annotated[float, "GB-seconds free each month", f"{_PRICING}/functions"] = 100_000
    ready_gb_second: Annotated[float, "price of a second of 1 GB of an always-ready instance", "an article; no list"] = 0.000004
    ready_gb_second_most: Annotated[float, "the same in a dearer region", "prices of Canada Central, in a README"] = 0.000005
    ready_active_gb_second: Annotated[float, "what a second costs more in which it executes", "an article; no list"] = 0.000016
    million_executions: Annotated[float, "price of a million executions", f"{_PRICING}/functions"] = 0.40
    free_executions: Annotated[float, "executions free each month", f"{_PRICING}/functions"] = 250_000
    least_ms: Annotated[float, "shortest time in ms for which a period of activity is billed", _PLAN] = 1000
    round_up_ms: Annotated[float, "step in ms to which longer periods are rounded up", _PLAN] = 100
    table_10k: Annotated[float, "price of 10,000 operations of tables, LRS", f"{_PRICING}/storage/tables"] = 0.00036
    queue_10k: Annotated[float, "price of 10,000 operations of queues, LRS", f"{_PRICING}/storage/queues"] = 0.004
    blob_10k: Annotated[float, "price of 10,000 operations of blobs, other than writes and lists", f"{_PRICING}/storage/blobs"] = 0.004
    stored_gb: Annotated[float, "price of a GB in tables for a month, LRS", f"{_PRICING}/storage/tables"] = 0.05
    stored_gb_zrs: Annotated[float, "the same, ZRS", "prices of Canada Central, in a README"] = 0.0625
    log_gb_least: Annotated[float, "price of a GB of ingested logs in a region with low prices", f"{_PRICING}/monitor"] = 2.30
    log_gb: Annotated[float, "the same in other regions", f"{_PRICING}/monitor"] = 2.76
    free_log_gb: Annotated[float, "GB of logs free each month; 5 for a billing account as a whole", f"{_PRICING}/monitor"] = 0.0
    log_alert_1m: Annotated[float, "price a month of a log search alert rule that runs every minute", f"{_PRICING}/monitor"] = 3.00
    log_alert_5m: Annotated[float, "the same for a rule that runs every 5 minutes", f"{_PRICING}/monitor"] = 1.50
    log_alert_10m: Annotated[float, "the same for a rule that runs every 10 minutes", f"{_PRICING}/monitor"] = 1.00
    log_alert_15m: Annotated[float, "the same for a rule that runs every 15 minutes or less often", f"{_PRICING}/monitor"] = 0.50
    metric_alert: Annotated[float, "price a month of a metric alert, for each time series that it watches", f"{_PRICING}/monitor"] = 0.10
    vault_10k: Annotated[float, "price of 10,000 operations of a vault", f"{_PRICING}/key-vault"] = 0.03
    private_endpoint: Annotated[float, "price of a private endpoint for a month", f"{_PRICING}/private-link"] = 7.30
    nat_gateway: Annotated[float, "price of a NAT gateway for a month", f"{_PRICING}/azure-nat-gateway"] = 32.85
    public_address: Annotated[float, "price of its public address for a month", f"{_PRICING}/ip-addresses"] = 3.65
    controller_poll_s: Annotated[float, "seconds between two looks of the scale controller at a queue, at least", "assumed"] = 5.0
    listener_poll_s: Annotated[float, "seconds between two polls of a queue listener that finds nothing", "host.json"] = 2.0
    warm_s: Annotated[float, "seconds that an instance and its queue listener stay after the last invocation", "assumed"] = 300.0
    vault_reads_day: Annotated[float, "reads a day of each secret that settings refer to", "assumed"] = 24.0
    metric_row_bytes: Annotated[float, "bytes of one value of a platform metric that is copied to the logs", "estimated"] = 400.0
    site_metrics: Annotated[float, "platform metrics of an app that are copied each minute, with `platformMetrics`", "estimated"] = 30.0
    service_metrics: Annotated[float, "platform metrics of a storage service or vault that are copied each minute", "estimated"] = 6.0
    host_leases_minute: Annotated[float, "renewals a minute of the lease of the host's first instance", "source of the host"] = 8.0
    timer_leases_minute: Annotated[float, "renewals a minute of a timer's lease", "source of the WebJobs SDK"] = 2.0
    event_row_bytes: Annotated[float, "bytes stored of an event of 500 bytes", "measured: scale.md"] = 1500.0
    kept_days: Annotated[float, "days that finished events are kept", "default of the service"] = 7.0


def load(file: Path | None) -> Prices:
    """Return the prices, those of the file instead of the defaults. Raises PriceError."""
    if file is None:
        return Prices()
    try:
        given = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise PriceError(f"{file}: {error}") from error
    known = {field.name for field in fields(Prices)}
    for name, value in given.items() if isinstance(given, dict) else [("", None)]:
        if name not in known:
            raise PriceError(f"{file}: no price is called {name!r}; there are {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise PriceError(f"{file}: {name} must be a number from 0")
    return replace(Prices(), **given)


def as_dict(prices: Prices) -> dict[str, float]:
    """Return the prices by name."""
    return asdict(prices)
