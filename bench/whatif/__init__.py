"""Predictions of `tocsin what-if` beside small real runs: devhost and Azurite."""
