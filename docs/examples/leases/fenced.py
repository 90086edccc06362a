import os
import sys

from tocsin.leases import Applied, FencedBatch, HttpTables, Insert, OutcomeUnknown, Refused, StaleEpoch


def pay(rows, order):
    """Write one order. Return False if this process no longer owns the partition."""
    while True:
        try:
            match rows.write([Insert(order, {"state": "paid"})]):
                case Applied():
                    print(f"{order} is written")
                case Refused(at, reason):
                    # Nothing is written: the first operation that did not hold is number `at`; here the order exists already.
                    print(f"{order} is refused: operation {at}: {reason}")
            return True
        except StaleEpoch:
            print(f"{order} is not written: another server owns the partition")
            return False
        except OutcomeUnknown:
            # The answer was lost. To insert again is safe: if the first try was applied, the second one is refused as `exists`.
            continue


tables = HttpTables.from_connection_string(os.environ["TABLES"])
partition, epoch = 5, int(sys.argv[1])
rows = FencedBatch(tables, "Orders", f"{partition:05d}", epoch)
rows.create_table()
try:
    # In on_gained, before anything is read: from here on the former owner is refused.
    rows.take()
    pay(rows, sys.argv[2])
except StaleEpoch:
    print(f"epoch {epoch} is over")
