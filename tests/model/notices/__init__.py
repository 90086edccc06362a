"""Notices to tenants, exhaustively."""
