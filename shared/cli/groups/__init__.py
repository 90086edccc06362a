"""Commands for people that have no folder of their own: one module a group, each with `register(app)`."""
