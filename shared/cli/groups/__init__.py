"""Commands for people: one module a group, each with `register(app)`. `session` holds what they share."""
