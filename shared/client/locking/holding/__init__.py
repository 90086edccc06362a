"""The state of a held lock, and its renewal, for both locks.

concurrent  for `AsyncLock`
blocking    the same for `Lock`; `make clients` writes it

What differs between threads and tasks is behind the port `Upkeep`.
"""
