"""Loads for 1 to 64 instances on a model of Flex Consumption: `python -m bench cluster-scale`.

meters    requests and entities of each second, and the limits of storage
polled    a queue whose instances take a bounded number of messages at each poll
service   the app on the platform of `bench flex`, with the amounts that limits and bill count
figures   the loads, and the rows of the table
"""
