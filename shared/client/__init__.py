"""The Python client: `Client` and `AsyncClient` for those who schedule events, `verify` for those who receive them.

    errors      what can go wrong, one tree
    model       what is sent and what comes back
    exchange    one call with its retries, without I/O: yields what to send and how long to wait
    calls       one function per operation of the API: what to send, how to read the answer
    batches     any number of events in chunks the API takes
    blocking    Client: the shell that carries it out with httpx.Client
    concurrent  AsyncClient: the same with httpx.AsyncClient
    receiving   verify, and the delivery it returns

Import the public names from `tocsin`.
"""
