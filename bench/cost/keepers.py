"""Servers of a fleet that go to storage themselves: `python -m bench.cost.keepers TENANT FLEET COUNT` with the storage in `TABLES`.

Prints `balanced` when every partition has a server and the servers' numbers of partitions differ by one at most. Runs until it is ended.
"""

from __future__ import annotations

import os
import sys
import time

from shared.leases.node.keeper import LeaseKeeper
from shared.storage.blocking import HttpTables


def main() -> None:
    """Run the servers, each with its own connection."""
    tenant, fleet, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    keepers = []
    for number in range(count):
        tables = HttpTables.from_connection_string(os.environ["TABLES"])
        keepers.append(LeaseKeeper(fleet, f"s{number:03d}", tables, tenant=tenant).start())
    reported = False
    while True:
        time.sleep(1)
        shares = [len(keeper.owned()) for keeper in keepers]
        if not reported and sum(shares) == keepers[0].partitions and max(shares) - min(shares) <= 1:
            reported = True
            print("balanced", flush=True)


if __name__ == "__main__":
    main()
