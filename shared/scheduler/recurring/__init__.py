"""Recurring schedules: occurrences by the local clock, each of which becomes an event exactly once.

cron            cron expressions: their grammar, and the days that they mean. Pure
cron_dialects   cron expressions of other schedulers, rewritten. Pure
timing          the occurrences of a schedule, and local times. Pure
words           a cron expression in words, as the service reads it
rules           the next step of a schedule's chain. Pure
chain           turns near occurrences into events
definition      a stored schedule, as a value and as rows
store           reads and conditional writes of definitions
service         the operations that callers ask for
calendars       dates on which schedules do not occur
limits          most schedules of a tenant, and most occurrences per second
"""
