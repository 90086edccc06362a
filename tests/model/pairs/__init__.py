"""Mirrored pairs under the checker."""
