"""The Python client: `Client` and `AsyncClient` schedule events, `verify` checks deliveries.

    errors      exceptions, as one tree
    model       arguments and answers
    exchange    one call with its retries, without I/O: yields the requests to send and the pauses to make
    calls       one function per operation of the API: builds the request, reads the answer
    batches     splits any number of events into chunks that the API accepts
    blocking    Client: runs calls with httpx.Client
    concurrent  AsyncClient: runs calls with httpx.AsyncClient
    resources   channels, tenants, keys, calendars and fleets: they are set up, not sent
    locking     locks, and the thread or task that renews them
    http        translates calls to and from httpx, for both clients
    receiving   verify, and the delivery it returns

Import the public names from `tocsin`.
"""
