"""Names of the tables and queues Tocsin keeps in its storage account (source: design page api.md).

Bicep creates them in Azure; locally the app creates them on start with `Storage.ensure`.
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

ALL_TABLES: Final = (EVENTS, SHARDS, LEDGER, IDS, LIMITS, SCHEDULES, TENANTS, FLEETS, TURNS, MAINTENANCE, SWEEPS)
ALL_QUEUES: Final = (QUEUE_INGEST, QUEUE_SHARDS, QUEUE_RETRIES)
