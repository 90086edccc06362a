"""The operations of the clients.

concurrent  those of `AsyncClient`
blocking    those of `Client`; `make clients` writes it
"""
