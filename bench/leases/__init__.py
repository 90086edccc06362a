"""Figures of leases."""
