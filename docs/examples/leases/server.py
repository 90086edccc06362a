import os
import signal
import sys

from tocsin.leases import HttpTables, LeaseKeeper


def lost(partition, reason):
    # In one piece: callbacks come on threads of their own.
    print(f"lost {partition} {reason}\n", end="", flush=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit())
tables = HttpTables.from_connection_string(os.environ["TABLES"])
with LeaseKeeper("search", sys.argv[1], tables, tenant="demo", on_lost=lost) as keeper:
    keeper.wait()
    while not keeper.ended(0.1):
        for partition in keeper.owned():
            if keeper.owns(partition):
                print(f"serving {partition}\n", end="", flush=True)
