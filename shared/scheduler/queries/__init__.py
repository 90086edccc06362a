"""Looking events up.

lookup        events by id, and lists
event_filter  what a list shows, and what a job acts on
views         events as callers see them
stats         counts of a tenant's events
totals        running totals of finished shards
end_notes     ends that users caused, for the totals
label_index   which labels can be looked up, and the pass that files the rows of older events
state_pass    the same for state rows, after a mirrored pair has changed sides
"""
