"""The content of the dashboard's tests: events, a fleet of servers, replicas and agents that speak HTTP, with names that try to be
markup."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4

import httpx
from aiohttp import web

from tests.integration.scheduler.conftest import ADMIN_KEY, now_ms, text_of
from tests.integration.scheduler.receiver import Receiver, status
from tests.waiting import wait_until

DEMO_KEY = "local-demo-key"
EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
FLEET, PARTITIONS = "db", 24
NODES = ("n1", "n2", "n3")
FREEZE, REBOOT = "602d9444-d2cd-49c7-8624-8643e7171297", "c7061bac-afdc-4513-b24b-aa5f13a16123"
MINUTE = 60_000


class Stage:
    """Fills the tenant `demo` of a devhost."""

    def __init__(self, url: str, receiver: Receiver, words: str = EVIL) -> None:
        """words: what all names, notes and payloads say."""
        self.url, self.receiver, self.words = url, receiver, words
        self._client = httpx.Client(base_url=f"{url}/api/v1/", timeout=180)
        self._incarnations = {node: str(uuid4()) for node in NODES}
        self._seqs = dict.fromkeys(NODES, 0)
        self._reports: dict[str, int] = {}
        self._ended = threading.Event()
        self._beating = threading.Thread(target=self._beat_on, name="beats", daemon=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._beating.is_alive():
            self._beating.join()
        self._client.close()

    def call(self, method: str, path: str, body: Any = None, key: str = DEMO_KEY) -> Any:
        """The answer's data; the call must succeed."""
        answer = self._client.request(method, path, json=body, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else None

    def listed(self, path: str, key: str = DEMO_KEY) -> list[Any]:
        """All items of a list. A page may be short, or empty: the service ends it where its time for one search ends."""
        items, cursor = [], ""
        while cursor is not None:
            page = self.call("GET", f"{path}&cursor={cursor}" if cursor else path, key=key)
            items += page["items"]
            cursor = page["next"]
        return items

    def until[T](self, ask: Callable[[], T], what: str) -> T:
        """The first true answer."""
        return wait_until(ask, what, pause=0.1, seen=lambda: self.call("GET", "stats"))

    def seed(self) -> Self:
        """Everything; returns once the API tells of it."""
        self.events()
        self.schedules()
        self.servers()
        self._beating.start()
        self.replicas()
        self.agents()
        self.locks()
        self.until(lambda: self.call("GET", "stats")["dead"] == 3, "dead letters")
        self.until(lambda: self.call("GET", "stats")["retrying"] == 1, "a retried event")
        self.until(self.lateness, "lateness")
        self.until(lambda: self.call("GET", "stats")["open"] == 301, "the last deliveries")
        return self

    def lateness(self) -> bool:
        """Return True once the API shows a lateness. Otherwise create another event.

        Only finished shards have a lateness, and the shard of the retried event may hold all the other events.
        """
        known_lateness = any(each["late_ms"]["max"] is not None for each in self.call("GET", "history")["items"])
        if not known_lateness:
            self.call("POST", "events", {"delay": "PT0.2S", "payload": None})
        return known_lateness

    def events(self) -> None:
        """Delivered, dead, retried and planned ones."""

        async def refuse(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=400, text=self.words, content_type="text/html")

        self.receiver.script("/refuses", refuse)
        self.receiver.script("/busy", status(503, retry_after="3600"))
        for name, path in (("refuses", "/refuses"), ("busy", "/busy")):
            self.call("PUT", f"tenants/demo/channels/{name}", {"type": "http", "url": self.receiver.url(path)}, ADMIN_KEY)
        due = text_of(now_ms() + 500)
        made = [{"due": due, "payload": {"order": number}} for number in range(40)]
        evil = {"payload": {"said": self.words}, "labels": {"note": self.words}, "channel": "refuses", "due": due}
        made += [{**evil, "id": f"bill-{number}", **({"on_dead": "default"} if number == 2 else {})} for number in range(3)]
        made += [{"due": due, "payload": {}, "channel": "busy", "id": "patient"}]
        made += [{"due": text_of(now_ms() + (20 + number % 30) * MINUTE), "payload": number} for number in range(300)]
        assert self.call("POST", "events/batch", made)["rejected"] == 0

    def schedules(self) -> None:
        """One that is far away, and one that is paused: neither has an event yet."""
        self.call("PUT", "schedules/new-year", {"cron": "0 0 1 1 *", "timezone": "Europe/Berlin", "payload": {"said": self.words}})
        self.call("PUT", "schedules/prices", {"every": "P1D", "payload": None, "overlap": "skip", "on_dead": "default"})
        self.call("POST", "schedules/prices/pause")

    def die(self, event_id: str) -> None:
        """An event of a channel of its own that dies, and would be delivered if it were brought back."""
        self.receiver.script(f"/{event_id}", status(400), status(204))
        self.call("PUT", f"tenants/demo/channels/{event_id}", {"type": "http", "url": self.receiver.url(f"/{event_id}")}, ADMIN_KEY)
        self.call("POST", "events", {"id": event_id, "delay": "PT0.2S", "payload": None, "channel": event_id})
        self.until(lambda: self.call("GET", f"events/{event_id}")["state"] == "dead", "its death")

    def tenant(self, name: str, *dying: str) -> None:
        """Another tenant, with dead events that would be delivered if they were brought back."""
        self.receiver.script(f"/{name}", *[status(400)] * len(dying), status(204))
        self.call("PUT", f"tenants/{name}", {}, ADMIN_KEY)
        self.call("PUT", f"tenants/{name}/channels/default", {"type": "http", "url": self.receiver.url(f"/{name}")}, ADMIN_KEY)
        for event_id in dying:
            self.call("POST", f"events?tenant={name}", {"id": event_id, "delay": "PT0.2S", "payload": None}, ADMIN_KEY)
        self.until(lambda: len(self.call("GET", f"dead-letters?tenant={name}", key=ADMIN_KEY)["items"]) == len(dying), "their death")

    def locks(self) -> None:
        """A lock with a waiter, and one that is revoked."""
        for name in ("nightly", "report"):
            for holder in ("web-1", self.words[:64]):
                self._client.put(
                    f"locks/{name}",
                    json={"holder": holder, "nonce": "n1", "ttl": "PT1H", "wait": "PT5M"},
                    headers={"authorization": f"Bearer {DEMO_KEY}"},
                )
        self.call("POST", "locks/report/revoke", {"note": self.words})

    def servers(self) -> None:
        """A fleet that serves most of its partitions."""
        # They release no partition that they are ordered to release, and must not be evicted for it.
        patient = {"beat": "PT2S", "validity": "PT20M", "takeover": "PT21M"}
        limits = {"claims_per_cycle": PARTITIONS, "drain": "PT19M"}
        self.call("PUT", f"fleets/{FLEET}", {"partitions": PARTITIONS, "profile": patient, "limits": limits})
        for node in NODES:
            self.beat(node, fault_domain=self.words[:60])
        for number in range(PARTITIONS - 2):
            node = NODES[number % len(NODES)]
            claim = {"node": node, "incarnation": self._incarnations[node], "partitions": [number]}
            found = self.call("POST", f"fleets/{FLEET}/leases/claim", claim)
            assert found["claimed"], found
        for at, node in enumerate(NODES[:2]):
            # So even that no partition moves.
            self.beat(node, loads={number: round(12 + number / PARTITIONS, 2) for number in range(at, PARTITIONS - 2, len(NODES))})
        self.call("POST", f"fleets/{FLEET}/nodes/n3/drain", {"note": self.words, "expires": "PT1H"})

    def beat(self, node: str, **more: Any) -> None:
        self._seqs[node] += 1
        self.call("POST", f"fleets/{FLEET}/nodes/{node}/beat", {"incarnation": self._incarnations[node], "seq": self._seqs[node], **more})

    def _beat_on(self) -> None:
        """The servers stay alive."""
        while not self._ended.wait(2):
            for node in NODES:
                self.beat(node)

    def replica(self, node: str, taking: int | None = None, last: int = 0) -> Any:
        self._reports[node] = self._reports.get(node, 0) + 1
        body = {"seq": self._reports[node], "role": "primary" if node == "n1" else "secondary", "term": 7, "applied": 81231}
        body |= {"last_checkpoint": last, "taking": {"epoch": taking} if taking else None, "mono_ms": time.monotonic_ns() // 1_000_000}
        return self.call("POST", f"fleets/{FLEET}/replicas/{node}/report", body)

    def replicas(self) -> None:
        """A primary and two secondaries, one of which has published a checkpoint."""
        for node in NODES:
            self.replica(node)

        def granted() -> tuple[str, int] | None:
            for node in NODES[1:]:
                if turn := self.replica(node)["turn"]:
                    return node, turn["epoch"]
            return None

        node, epoch = self.until(granted, "a turn")
        self.replica(node, epoch)
        published = {"node": node, "sequence": 81231, "location": f"https://backups.example/{self.words}", "bytes": 1024}
        self.call("POST", f"fleets/{FLEET}/turns/{epoch}/publish", published)
        self.replica(node, last=81231)

    def agents(self) -> None:
        """Three agents: one has a freeze before it, one a reboot."""
        self.report("n1", FREEZE, "Freeze", 15)
        self.report("n2", REBOOT, "Reboot", 20, reason=self.words[:200])
        self.report("n3")

    def report(self, node: str, event_id: str = "", kind: str = "", minutes: int = 0, phase: str = "PREPARED", **more: Any) -> None:
        name = f"agent-{node}"
        self._reports[name] = self._reports.get(name, 0) + 1
        entry = {"event_id": event_id, "type": kind, "status": "Scheduled", "not_before": text_of(now_ms() + minutes * MINUTE)}
        entry |= {"source": "Platform", "duration_s": 9, "resources": [f"vm_{node}"], "phase": phase, **more}
        body = {"node": node, "seq": self._reports[name], "vm": f"vm_{node}", "scope": "set", "location": "westeurope"}
        body |= {"fault_domain": node[1:], "boot_id": "b", "incarnation": 3, "disabled": False, "events": [entry] if event_id else []}
        self.call("POST", f"fleets/{FLEET}/maintenance/reports", body)
