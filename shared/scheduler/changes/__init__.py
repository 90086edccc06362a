"""Changes that users make to stored events.

verbs        cancel, edit, reschedule, fire now, redrive
collapsing   the last event under an id replaces those before it that no owner has claimed
"""
