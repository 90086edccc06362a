"""Rows that make events findable, so that lists need not read every shard.

rows      the kinds of finding rows; filing and removing them
states    dead, retrying and held events: pure
held      the numbers of held events: pure
labels    searchable labels: pure
facets    what the core calls at its points
"""
