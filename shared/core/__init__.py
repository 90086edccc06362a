"""Time, ids, errors, durations, settings and a lean HTTP client, for every other package. It imports no other package of Tocsin."""
