"""Runs an example beside `tocsin dev`: a tenant of its own on the local app, and a receiver on a free port of this machine.

TOCSIN_URL names another address of the app, TOCSIN_ADMIN_KEY another key.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import tocsin

type Handler = Callable[[Mapping[str, str], bytes], int]


@dataclass
class Stage:
    """A client of the tenant, and the secrets and handlers of its channels by name."""

    client: tocsin.Client
    secrets: dict[str, str] = field(default_factory=dict)
    handlers: dict[str, Handler] = field(default_factory=dict)

    def wait(self, until: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until a condition holds. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise TimeoutError(f"Nothing happened for {seconds:g} s. Does the app run (tocsin dev)?")
            time.sleep(0.05)


@contextmanager
def stage(*channels: str) -> Iterator[Stage]:
    """Create a tenant with these channels (`default` without any), whose deliveries go to `handlers`. Deletes it in the end."""
    url, key = os.environ.get("TOCSIN_URL", "http://localhost:7071"), os.environ.get("TOCSIN_ADMIN_KEY", "local-admin-key")
    tenant = f"example-{uuid4().hex[:8]}"
    handlers: dict[str, Handler] = {}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            handle = handlers.get(self.path.removeprefix("/"))
            self.send_response(503 if handle is None else handle(dict(self.headers.items()), body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("localhost", 0), Receiver) as server, tocsin.Client(url, key) as admin:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        admin.call("PUT", f"tenants/{tenant}", {})
        try:
            here = f"http://localhost:{server.server_port}"
            made = {
                name: admin.call("PUT", f"tenants/{tenant}/channels/{name}", {"type": "http", "url": f"{here}/{name}"})
                for name in channels or ("default",)
            }
            shown = admin.call("POST", f"tenants/{tenant}/keys", {"scopes": ["events"], "note": "example"})
            with tocsin.Client(url, shown["key"]) as client:
                yield Stage(client, {name: channel["secret"] for name, channel in made.items()}, handlers)
        finally:
            admin.call("DELETE", f"tenants/{tenant}")
            server.shutdown()
