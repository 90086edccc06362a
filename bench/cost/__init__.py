"""Computes what Azure would bill: `python -m bench cost`; docs/how-to/what-it-costs.md has the table.

prices      the prices, each with its source, in one table
rules       arithmetic alone: from what was measured to US dollars
deployed    the resources with fixed costs, from infra/snapshots
observed    reads the records of a run: invocations, requests to storage, telemetry
instances   processes with the processor and the memory of an instance
measuring   the app in groups of functions, each on its instance, for a while
loads       the loads
wakes       the costs that planned wakes add to each of them, from bench flex
page        the figures in the documentation, from results.json
command     the command, its table and its JSON
"""
