"""The lines of ordering keys and schedules: events of a line are delivered one after the other.

rules      which of a line's events may be delivered now. Pure
protocol   the line in storage: generators of effects
service    the lines as one process uses them
tidying    removes rows that nothing waits for any more
"""
