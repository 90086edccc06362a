"""Predictions: a twin of a running Tocsin on virtual time, built from an export, with a change and without it.

export        reads due events, schedules, fleets and announced maintenance from the API: figures, but no payloads and no secrets
snapshot      the file of an export
changes       parses changes, such as `--slow orders=2s@12:00`
twin/         instances of the app, storage and CPU on virtual time; the benchmarks use them too
fleet/        servers, agents and replicas of a fleet on virtual time, and Azure around them
play          runs a twin: the snapshot, the changes and a seed give an outcome
comparison    two outcomes side by side
chart         draws them as SVG
"""
