"""What every other package may use: time, ids, errors, durations, settings. Imports nothing else of Tocsin."""
