"""`tocsin check-receiver`: checks a receiver of deliveries from outside. It needs no service.

command          the command and its screen
plan             the checks, the number of their requests, the durations
requests         the bytes of deliveries as the service's sender writes them, and of those that nobody should accept. No I/O
endpoint         connections to the endpoint: guarded addresses, bounded reads
run              what is sent, in which order and how fast
seen             the observations of a run
rules            the judgement: observations -> lines with their meaning and advice. No I/O
duplicate_rules  the same for duplicates and effects
"""
