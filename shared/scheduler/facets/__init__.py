"""The features' knowledge of an event's row, each in its own folder. Pure: a facet neither reads nor writes storage.

fanouts/     the ids of a fan-out's events
long_work/   receivers that complete an event later: tokens, and what becomes of the event
"""
