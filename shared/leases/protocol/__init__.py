"""The lease protocol without I/O: generators that yield the effects of `engine.effects`.

membership     register, send heartbeats (with claims and releases), leave
takeover       observe and fence servers, find claimable partitions, write orders; create a fleet's rows
resizing       change the partition count; close a fleet before changes that need it without servers
repair         restore missing rows, reopen a fleet
http_servers   heartbeats, claims and releases of servers that speak HTTP
fencing        token rows in a storage partition of the user
"""
