"""Names of the tables and queues Tocsin keeps in its storage account, and of the accounts where there are several.

Bicep creates tables and queues in Azure; locally the app creates them on start with `Storage.ensure`.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final = "TocsinEvents"
SHARDS: Final = "TocsinShards"
LEDGER: Final = "TocsinLedger"
IDS: Final = "TocsinIds"
LIMITS: Final = "TocsinLimits"
SCHEDULES: Final = "TocsinSchedules"
TENANTS: Final = "TocsinTenants"
FLEETS: Final = "TocsinFleets"
TURNS: Final = "TocsinTurns"
MAINTENANCE: Final = "TocsinMaintenance"
SWEEPS: Final = "TocsinSweeps"

QUEUE_INGEST: Final = "tocsin-ingest"
QUEUE_SHARDS: Final = "tocsin-shards"
QUEUE_RETRIES: Final = "tocsin-retries"
QUEUE_SWEEPS: Final = "tocsin-sweeps"

ALL_TABLES: Final = (EVENTS, SHARDS, LEDGER, IDS, LIMITS, SCHEDULES, TENANTS, FLEETS, TURNS, MAINTENANCE, SWEEPS)
ALL_QUEUES: Final = (QUEUE_INGEST, QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_SWEEPS)
POISON_QUEUES: Final = tuple(f"{queue}-poison" for queue in ALL_QUEUES)
"""The queues into which the host puts messages that failed. The host creates them when it first needs them, and until then looks for them
at every poll, with a warning each time; so the service creates them with the others."""


PK_TICKS: Final = "tick"
"""Partition of `TocsinSweeps` with one row per timer: `at`, the time of its last tick in milliseconds."""
BULK_JOBS: Final = "bulk_jobs"
"""The sweep's job that carries bulk jobs on, as messages of `tocsin-sweeps` name it."""
HOME: Final = "0"
"""The place of the home account, which keeps everything that is not a shard. Other accounts' places are their numbers, in hex."""
MIRRORED: Final = "m"
"""The place of shards that two accounts keep."""

FIRST: Final = "first:"
"""Before a table's name: that of the home account, whichever side of a mirrored pair one is on."""
SECOND: Final = "second:"
"""Before a table's name: that of the pair's second account."""
