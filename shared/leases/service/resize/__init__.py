"""Changing a fleet's partition count over HTTP. The protocol is `protocol/resizing`, the decisions are `generations`.

    model       wire models
    service     begins a change, and tells the servers
    functions   the door
"""
