"""The table of all routes: what holds for the answers of every one."""

from __future__ import annotations

import re

from shared.app.application import Application
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.extras.parts import build_routes
from shared.testing import Tocsin
from shared.web.local_client import LocalClient
from shared.web.routes import Answer
from shared.web.serve import write


async def test_every_json_answer_ends_with_a_newline() -> None:
    routes = build_routes()
    seen = 0
    async with Tocsin() as kit:

        async def get_app() -> Application:
            return kit.app

        client = LocalClient(routes, get_app, key=LOCAL_ADMIN_KEY)
        for route in routes:
            path = "/api/" + re.sub(r"\{(\w+)[^}]*\}", r"\1", route.template)
            answer = await client.call(route.method, f"{path}?tenant=demo" if route.of_tenant else path)
            if "json" in answer.headers.get("content-type", ""):
                seen += 1
                assert answer.body.endswith(b"\n"), (route.name, answer.status, answer.body[-80:])
    assert seen > 100


def test_json_that_a_handler_has_made_itself_gets_a_newline_too() -> None:
    assert write(Answer(200, b'{"a":1}')).body == b'{"a":1}\n'
    assert write(Answer(200, b'{"a":1}\n', content_type="application/problem+json")).body == b'{"a":1}\n'
    assert write(Answer(200, b"<p>", content_type="text/html")).body == b"<p>"
