"""The agent of a node: it polls the Instance Metadata Service, decides, runs the node's hooks, approves and restores.

`document`, `choosing` and `rules` (with `sighting`, `duties`, `approving`, `outside`, `watching`, `dry`) decide, and know no I/O.
`model` has their values, `journal` keeps their state over crashes. Nothing here imports the service's libraries, so that the agent
stays small.
"""
