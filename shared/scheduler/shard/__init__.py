"""The core of a shard: what every event needs, and no feature.

gate         the gate row: who may write to the shard; fencing after a lost answer, sealing
event_clock  the machine's clock, corrected where storage's time proves it wrong
queued_ids   ids of events that may not be stored yet; an id itself proves that the service gave it
ledger       the rows of finished shards
retries      the pauses, the number of attempts and the end of a failed delivery: pure
"""
