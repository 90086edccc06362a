"""The service in one process, without the Functions host: for `tocsin dev` on real time, for `tocsin.testing` on virtual time.

    demo           tenant, keys and settings
    api            answers API calls: finds the route, serves it
    invocations    carries out a message of a queue

For `tocsin dev` alone:

    service        the whole of it, opened and closed in order
    stores         its storage: in memory, in a folder, an account
    functions      polls queues and runs the timer
    senders        tells of each attempt at a delivery
    http_server    the one port
    http_requests  parts of HTTP servers that the devhost uses, too
    receiver       takes deliveries, and shows them on a page (`page`)

A delivery, on its way: `POST /api/v1/events` comes to `http_server`, goes through `api` to the app, which stores it and sends a message;
`functions` takes the message, the app delivers through `senders` to `/receiver` on the same port, and `receiver` shows it.
"""
