"""Locks of the clients: `with client.lock("nightly"):`.

rules       decides what to send, when to ask again, and what an answer means: without I/O
holding     the state of a held lock, and its renewal: once, for both
concurrent  AsyncLock, with tasks beside its block
blocking    Lock, with threads beside its block
"""
