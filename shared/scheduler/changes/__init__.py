"""Changes that users make to stored events.

table        the verbs of requests and jobs: cancel, move, fire, redrive
verbs        how each of them changes one event, or dead events of a shard
fanouts      one request whose event goes to several channels, shown and changed by one id
collapsing   the last event under an id replaces those before it that no owner has claimed
"""
