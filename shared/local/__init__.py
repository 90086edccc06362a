"""The service in one process, without the Functions host: for `tocsin dev` on real time, for `tocsin.testing` on virtual time.

    demo           tenant, keys and settings
    api            answers API calls: finds the route, serves it
    invocations    carries out the message of a queue

For `tocsin dev` alone:

    service        opens and closes all of it in order
    stores         opens its storage: in memory, in a folder, or an account
    functions      polls queues and runs the timer
    senders        reports each attempt at a delivery
    http_server    answers all requests, on one port
    http_requests  functions for HTTP servers, which the devhost uses too
    receiver       answers deliveries, and shows them on a page (`page`)

The way of a delivery: `POST /api/v1/events` comes to `http_server`, goes through `api` to the app, which stores it and sends a message;
`functions` takes the message, the app delivers through `senders` to `/receiver` on the same port, and `receiver` shows it.
"""
