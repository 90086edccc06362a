"""The Python client: `Client` and `AsyncClient` schedule events, `verify` checks deliveries.

    errors      exceptions, as one tree
    model       arguments and answers
    exchange    one call with its retries, without I/O: yields the requests to send and the pauses to make
    calls       one function per operation of the API: builds the request, reads the answer
    batches     splits any number of events into chunks that the API accepts
    operations  the operations of the clients, and of what they list
    sending     runs calls with httpx.Client or httpx.AsyncClient
    concurrent  AsyncClient: operations with asyncio
    blocking    Client: blocking operations, which `make clients` derives from those with asyncio
    resources   channels, tenants, keys, calendars and fleets: they are set up, not sent
    locking     locks, and the threads or tasks that renew them
    http        translates calls to and from httpx, for both clients
    receiving   verify, and the delivery it returns

Import the public names from `tocsin`.
"""
