"""Sweeps over the index, run by the app's timer and by whoever finds the timer silent.

index      dispatches shards that are due, repairs those without an owner, removes those whose retention has passed
looks      a look at what wakes soon: messages of shards, and the wakes before them
recovery   asks at once for the shards of a process that has died
backlog    the drain of a backlog, at a set rate, oldest first. Pure
"""
