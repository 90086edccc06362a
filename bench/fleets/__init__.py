"""Hundreds of fleets on virtual time: agents, keepers and the app around a maintenance wave."""
