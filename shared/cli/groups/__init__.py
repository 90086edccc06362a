"""The groups that people use: one module a job, each `register(app)`. What they share is in `session` and `output`."""
