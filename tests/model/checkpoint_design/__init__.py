"""The seed's own model of checkpoint coordination, before any of our rules: what must hold, and which optimization breaks it."""
