"""Locks of the clients: `with client.lock("nightly"):`.

rules       decides what to send, when to ask again, and what an answer means: without I/O
blocking    Lock, renewed by a thread
concurrent  AsyncLock, renewed by a task
"""
