"""Servers, agents and replicas of a fleet on virtual time."""
