"""The endpoint layer: one route table, from which the Functions app, the checks and the OpenAPI document are made.

How a job opens its doors::

    # shared/scheduler/routes.py
    from ..web.routes import Answer, Call, Routes

    def register(routes: Routes) -> None:
        @routes.route("GET", "v1/events/{id}", name="events_get", scope="events", params={"id": EventId},
                      answers={200: EventOut}, summary="One event")
        async def get(call: Call[App]) -> Answer:
            found = await call.app.events.get(call.tenant, call.params["id"])
            return Answer(200, found.view(), etag=etag_of(found.etag))

    # function_app.py
    app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
    app.register_functions(bind(routes, get_app))       # get_app: async () -> App, creates its clients in the running loop

The rooms: `routes` (table, `Call`, `Answer`), `templates` (route templates, ambiguity), `intake` (query, JSON body, validation),
`problem` (RFC 9457), `auth` (keys, scopes, `?tenant=`), `serve` (one call, framework-free), `bind` (azure.functions), `params`
(query models), `words` (what is said of wrong values), `cursor`, `etag`, `openapi`.
"""
