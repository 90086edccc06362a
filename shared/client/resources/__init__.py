"""What an administrator or a developer sets up, for both clients: channels, tenants, keys, calendars and fleets.

fields       definitions as arguments: the fields of channels, tenants and fleets
definitions  the definition that an answer shows, merged with named fields
model        answers
calls        one function per operation: builds the request, reads the answer
changes      changes named fields of a stored definition on its entity tag
blocking     Channels, Tenants, Keys, Calendars, Fleets of `Client`
concurrent   the same of `AsyncClient`
"""
