"""What single features know of an event's row. Pure: a facet neither reads nor writes storage.

fanouts/     the ids of a fan-out's events
long_work/   receivers that complete an event later: tokens, and what becomes of the event
"""
