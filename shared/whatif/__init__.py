"""What if: a twin of a running Tocsin on virtual time, built from an export, with a change and without it.

export        reads due events, schedules, fleets and announced maintenance by the API; only figures leave, no payloads and no secrets
snapshot      the file of an export
changes       the changes that a person asks about, such as `--slow orders=2s@12:00`
twin/         instances of the app, storage and CPU on virtual time; the benchmarks use them too
fleet/        servers, agents and replicas of a fleet on virtual time, and Azure around them
play          one run: the snapshot, the changes and a seed give an outcome
comparison    two outcomes side by side
chart         the same as a drawing
"""
