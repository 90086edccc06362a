"""`python -m bench flex`: lateness and bill on Flex Consumption, computed on virtual time.

timeline   virtual time, and tasks that wait on it
platform   the platform's parameters with their sources; groups of functions, their instances, the scale controller, a queue's listener
service    the app as far as wakes matter: production's rules and generators, on that platform
loads      the loads
run        one run, its lateness and its bill
command    the command: cells, targets, table
"""
