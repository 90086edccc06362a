"""The lease protocol without I/O: generators that yield effects, like those of the scheduler (`scheduler.protocol`).

effects      what can be yielded: `Get`, `Load`, `Write` of the scheduler's, and the two moments
membership   register, beat (claims and releases ride on it), leave
takeover     fence, scout, order; creating a fleet
closing      changing what no server may run under
remote       beats, claims and releases of servers that speak HTTP
fencing      the token rows of a user's own partition
"""
