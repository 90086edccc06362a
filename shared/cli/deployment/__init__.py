"""`tocsin check-deployment`: checks a deployed service without a public receiver.

command      the command and its screen
plan         the durations of a run
mailbox      a queue of the home account, into which the service delivers
azure_login  tokens of `az login`
stage        the tenant, the channel and the queue of a run, and their removal
run          what is posted and read, in which order
seen         the observations of a run
rules        the judgement: observations -> lines with their meaning and advice. No I/O
flex_run     the long measures of `--flex`
flex_rules   their judgement. No I/O
"""
