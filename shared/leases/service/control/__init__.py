"""Manual controls: verbs of operators on partitions and servers, stored as intents with note, author and expiry.

model     wire models
verbs     pure: the changes that a verb makes, and the reasons to refuse it
service   applies a verb, plans, and gives the orders at once
routes    the API
"""
