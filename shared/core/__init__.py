"""Time, ids, errors, durations and settings, for every other package. This package imports no other package of Tocsin."""
