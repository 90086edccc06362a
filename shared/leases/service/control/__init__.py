"""What operators say to a fleet: verbs on partitions and servers, kept as intents with note, author and expiry.

    model       wire models
    verbs       pure: what a verb changes, and what refuses it
    service     carries a verb out, plans, and gives the orders at once
    functions   the doors
"""
