"""The prices in US dollars, and the rules that have a number. All in one table; `--prices FILE` (JSON) replaces some of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path


class PriceError(Exception):
    """A file of prices cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices without tax, examples for a region of the United States in 2025: look yours up in Azure's price lists.

    A month has 30 days. Free amounts are per subscription and month, and are counted as if nothing else used them.
    """

    gb_second: float = 0.000026
    """A second of an instance of one GB that executes something, on demand: azure.microsoft.com/pricing/details/functions."""
    free_gb_seconds: float = 100_000
    million_executions: float = 0.40
    """From the same page."""
    free_executions: float = 250_000
    least_ms: int = 1000
    """A period of activity is billed for at least so long: learn.microsoft.com, "Flex Consumption plan hosting", Billing."""
    round_up_ms: int = 100
    """Longer ones are rounded up to a multiple of this: the same page."""
    table_10k: float = 0.00036
    """10,000 operations of tables, LRS: azure.microsoft.com/pricing/details/storage/tables."""
    queue_10k: float = 0.004
    """10,000 operations of queues, LRS: azure.microsoft.com/pricing/details/storage/queues."""
    blob_10k: float = 0.004
    """10,000 operations of blobs that neither write, list nor create, LRS: azure.microsoft.com/pricing/details/storage/blobs."""
    stored_gb: float = 0.05
    """A GB in tables for a month: as table_10k."""
    log_gb: float = 2.76
    """A GB of ingested logs: azure.microsoft.com/pricing/details/monitor, Analytics Logs, pay as you go (2.30 to 2.76 by region)."""
    free_log_gb: float = 0.0
    """The first 5 GB of a month are free for each billing account; other applications may have used them."""
    log_alert_1m: float = 3.00
    """A log search alert rule that runs every minute, a month: the same page. The next ones: every 5, 10, and 15 minutes or more seldom."""
    log_alert_5m: float = 1.50
    log_alert_10m: float = 1.00
    log_alert_15m: float = 0.50
    metric_alert: float = 0.10
    """A metric alert rule, for each time series that it watches: the same page."""
    vault_10k: float = 0.03
    """10,000 operations of a vault: azure.microsoft.com/pricing/details/key-vault."""
    private_endpoint: float = 7.30
    """A private endpoint for a month: azure.microsoft.com/pricing/details/private-link."""
    warm_s: float = 300.0
    """Seconds that an instance stays after its last invocation, and its queue listener polls. An assumption: Azure does not publish it."""
    vault_reads_day: float = 24.0
    """Reads of each secret that settings refer to, a day. An assumption: they are read at least daily and at each start of an instance."""
    metric_row_bytes: float = 400.0
    """A value of a platform metric as a log row. An estimate."""
    site_metrics: float = 30.0
    """Metrics of a function app that a diagnostic setting with `AllMetrics` copies to the logs each minute. An estimate."""
    service_metrics: float = 6.0
    """The same for a storage service or a vault while it is used. An estimate from the published list."""
    host_leases_minute: float = 8.0
    """Renewals of the lease by which the host finds its primary instance, a minute. From the host's source: 15 s, renewed at half."""
    timer_leases_minute: float = 2.0
    """Renewals of the lease of each timer function's listener. From the source of the WebJobs SDK: 60 s, renewed at half."""
    event_row_bytes: float = 1500.0
    """What is stored of an event of 500 bytes: docs/explain/scale.md."""
    kept_days: float = 7.0
    """Days that finished events are kept by default."""


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
