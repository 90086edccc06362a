"""Exhaustive model checks. `python -m tests.model` runs and prints them; the quick ones are part of `make test`."""
