"""Certificates for servers of tests."""

from devhost.tokens import make_certificate

__all__ = ["make_certificate"]
