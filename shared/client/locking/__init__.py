"""Locks of the clients: `with client.lock("nightly"):`.

rules       what to send, when to ask again, what an answer means: without I/O
blocking    Lock, renewed by a thread
concurrent  AsyncLock, renewed by a task
"""
