"""Changes of a fleet's partition count over HTTP. `protocol/resizing` has the protocol, `generations` the decisions.

model     wire models
service   begins a change, and gives the servers their orders
routes    the API
"""
