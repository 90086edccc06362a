"""The service in one process, without the Functions host: for `tocsin dev` on real time, for `tocsin.testing` on virtual time.

    demo           tenant, keys and settings
    invocations    answers API calls, and carries out the messages of queues

For `tocsin dev` alone:

    service        opens and closes all of it in order, and reports each attempt at a delivery
    stores         opens its storage: in memory, in a folder, or an account
    functions      polls queues and runs the timer
    http_server    answers all requests, on one port
    http_requests  functions for HTTP servers, which the devhost uses too
    receiver       answers deliveries, and shows them on a page (`page`)

The way of a delivery: `POST /api/v1/events` comes to `http_server`, goes through `invocations` to the app, which stores it and sends a
message; `functions` takes the message, the app delivers through the senders of `service` to `/receiver` on the same port, and `receiver`
shows it.
"""
