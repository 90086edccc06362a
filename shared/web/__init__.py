"""The endpoint layer: one route table, from which the functions, the checks and the OpenAPI document are made.

A job declares its routes in a group::

    # shared/scheduler/routes/events.py
    events = Group[Scheduler]("events", scope="events", params={"id": EventId})

    @events.get("v1/events/{id}", answers={200: EventOut}, tagged=True)
    async def events_get(call: Call[Scheduler]) -> Answer:
        \"""Return an event.\"""
        ...

    # shared/app/routes.py, in a group of the table; for an optional part of the service, in its `part.py`
    routes.add(events, lambda app: app.scheduler)

Modules: `routes` (groups, the table, `Call`, `Answer`), `templates` (route templates, ambiguity), `parsing` (query, JSON body, validation),
`problem` (RFC 9457), `auth` (keys, scopes, `?tenant=`), `serve` (one call, without a framework), `functions_host` (azure.functions),
`indexed` (what the host must know of a route), `host_calls` (its calls),
`fields` (types, query models, texts of errors), `paging` (cursors), `etag`, `openapi`, `dashboard`.
"""
