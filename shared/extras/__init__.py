"""Optional parts of the service; the application names none of them.

parts          the list that the service is built with, and the table of all routes; `route_index` is its index
bigben         BigBen's API
kafka_source   Kafka as a source of events, and the sender of Kafka channels
verification   judges the protocol trace, while it is written and afterwards
emulator       the Scheduled Events emulator, a command
"""
