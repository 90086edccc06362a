"""Runs the steps of a call: sends its requests with httpx, and makes its pauses.

concurrent  for `AsyncClient` and the awaited calls of `Work`
blocking    the same for `Client` and `Work`; `make clients` writes it
"""
