"""`tocsin check-deployment`: checks a deployed service without a public receiver.

command      the command and its screen
plan         the durations of a run
mailbox      a queue of the home account, into which the service delivers, and tokens of `az login` for it
stage        the tenant, the channel and the queue of a run, and their removal
run          what is posted and read, in which order; and the long measures of `--flex`
seen         the observations of a run
rules        the judgement: observations -> lines with their meaning and advice. No I/O
flex_rules   the judgement of the long measures. No I/O
"""
