"""Resources that are set up and not sent, for both clients: channels, tenants, keys, calendars and fleets.

fields       types of arguments: the fields of channels, tenants and fleets
definitions  finds the definition in an answer, and merges named fields into it
model        types of answers
calls        one function per operation: builds the request, reads the answer
changes      changes named fields of a stored definition on its entity tag
concurrent   AsyncChannels, AsyncTenants, AsyncKeys, AsyncCalendars, AsyncFleets of `AsyncClient`
blocking     the same of `Client`; `make clients` writes it
"""
