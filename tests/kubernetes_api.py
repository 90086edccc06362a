"""A small API server of Kubernetes for tests, over TLS: nodes, pods, evictions with budgets, and the rights of one service account.

It keeps what a drain depends on: versions of objects, preconditions, grace periods, PodDisruptionBudgets that count healthy pods, and
controllers that make a new pod on another node. It can go down, refuse, answer late, and replace the account's token.
"""

from __future__ import annotations

import ipaddress
import json
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.paths import ROOT

MANIFESTS = ROOT / "infra" / "agent" / "kubernetes" / "agent.yaml"
NODE, OTHER = "aks-pool1-00-vmss000000", "aks-pool1-00-vmss000001"

type Right = tuple[str, str, str]
"""API group, resource, verb."""


def manifest(kind: str) -> dict[str, Any]:
    """Return the manifest's only object of a kind."""
    [found] = [each for each in yaml.safe_load_all(MANIFESTS.read_text()) if each["kind"] == kind]
    return dict(found)


def rights_of_the_role() -> set[Right]:
    """Return what the manifest's role allows."""
    return {
        (group, resource, verb)
        for rule in manifest("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@dataclass(slots=True)
class Refusal:
    """An answer to an eviction in place of the usual one. status: of HTTP; code: in the body, the status if None."""

    status: int
    message: str
    retry_after: int = 0
    code: int | None = None


@dataclass(slots=True)
class Pod:
    """A pod. lingers: seconds that it needs to end after it was asked, at most its grace period."""

    name: str
    namespace: str = "shop"
    node: str = NODE
    app: str = ""
    owner: str = "ReplicaSet"
    grace: int = 30
    lingers: float = 0.0
    phase: str = "Running"
    mirror: bool = False
    uid: str = field(default_factory=lambda: secrets.token_hex(8))
    deletion: float | None = None
    gone_at: float | None = None

    def end(self, grace: int | None, now: float) -> None:
        """Begin to end, or end sooner."""
        ends = now + (self.grace if grace is None else grace)
        self.deletion = ends if self.deletion is None else min(self.deletion, ends)
        self.gone_at = min(self.deletion, self.gone_at or now + self.lingers)

    def shown(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "labels": {"app": self.app}}
        if self.owner:
            metadata["ownerReferences"] = [{"kind": self.owner, "name": "owner", "controller": True}]
        if self.mirror:
            metadata["annotations"] = {"kubernetes.io/config.mirror": "hash"}
        if self.deletion is not None:
            metadata["deletionTimestamp"] = datetime.fromtimestamp(self.deletion, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        spec = {"nodeName": self.node, "terminationGracePeriodSeconds": self.grace}
        return {"metadata": metadata, "spec": spec, "status": {"phase": self.phase}}


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the server got."""

    right: Right
    path: str
    body: dict[str, Any]


class KubernetesApi:
    """The server. account: the folder that pods have. clock: returns seconds since 1970."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.rights, self._clock = rights_of_the_role(), clock
        """The calls that the role in the manifest allows to the service account."""
        self.account = folder / "account"
        self.account.mkdir()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(_certificates(folder, self.account / "ca.crt"))
        self.lock = threading.RLock()
        self.calls: list[Call] = []
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: list[Pod] = []
        self.minimum: dict[str, int] = {}
        """Healthy pods that an app's budget asks for, by app."""
        self.lowest: dict[str, int] = {}
        """Fewest healthy pods that an app has had since its budget counts."""
        self.refusals: dict[str, list[Refusal]] = {}
        """Answers to the next evictions of a pod; the last one stays if `stubborn` names the pod."""
        self.stubborn: set[str] = set()
        self.before: Callable[[Call], None] = lambda call: None
        """Called with each call before it is answered, without the lock."""
        self.recreated_after = 0.0
        self._waiting: list[tuple[float, Pod]] = []
        self.token = ""
        self.renew_token()
        self.is_away = False
        """While true, each connection is closed. The port stays the server's, so that no other process takes it."""
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        for name in (NODE, OTHER):
            self.add_node(name)

    # -- its life

    def begin(self) -> None:
        """Listen on a free port."""
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.verify_request = lambda *_: not self.is_away  # type: ignore[method-assign]
        self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def environment(self) -> dict[str, str]:
        """Return the variables of a pod on the node."""
        place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}
        return {**place, "NODE_NAME": NODE, "SERVICE_ACCOUNT": str(self.account)}

    def renew_token(self) -> str:
        """Give the account a token, in place of the former one. Return the former one."""
        former, self.token = self.token, secrets.token_hex(8)
        (self.account / "token").write_text(self.token)
        return former

    # -- its objects

    def add_node(self, name: str) -> None:
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.nodes[name] = {"kind": "Node", "metadata": {"name": name, "resourceVersion": "1"}, "spec": {}, "status": status}

    def change_node(self, **spec: Any) -> None:
        """Change the node as somebody else does."""
        with self.lock:
            self._merge(self.nodes[NODE], {"spec": spec})

    def add(self, name: str, **more: Any) -> Pod:
        with self.lock:
            self.pods.append(Pod(name, **more))
            return self.pods[-1]

    def on_node(self, name: str = NODE) -> list[str]:
        """Return the names of the pods that are on the node now."""
        with self.lock:
            self._move_on()
            return [pod.name for pod in self.pods if pod.node == name]

    def is_cordoned(self, name: str = NODE) -> bool:
        return bool(self.nodes[name]["spec"].get("unschedulable"))

    def annotations(self, name: str = NODE) -> dict[str, str]:
        return dict(self.nodes[name]["metadata"].get("annotations", {}))

    def evictions(self, name: str = "") -> list[dict[str, Any]]:
        """Return the bodies of the evictions that were asked for, of one pod if it is named."""
        found = [call.body for call in list(self.calls) if call.right[1] == "pods/eviction"]
        return [body for body in found if not name or body["metadata"]["name"] == name]

    def verbs(self) -> set[Right]:
        """Return what was asked for so far."""
        return {call.right for call in list(self.calls)}

    def _healthy(self, app: str) -> int:
        return sum(pod.app == app and pod.deletion is None and pod.phase == "Running" for pod in self.pods)

    def _move_on(self) -> None:
        """Remove pods that have ended, and let their controllers make new ones on the other node."""
        now = self._clock()
        for pod in [each for each in self.pods if each.gone_at is not None and each.gone_at <= now]:
            self.pods.remove(pod)
            if pod.owner in ("ReplicaSet", "StatefulSet"):
                # A StatefulSet gives the new pod the same name.
                name = pod.name if pod.owner == "StatefulSet" else f"{pod.name}-new"
                new = Pod(name, pod.namespace, OTHER, pod.app, pod.owner, pod.grace, pod.lingers)
                self._waiting.append((now + self.recreated_after, new))
        self.pods += [pod for at, pod in self._waiting if at <= now]
        self._waiting = [(at, pod) for at, pod in self._waiting if at > now]

    def _merge(self, node: dict[str, Any], patch: dict[str, Any]) -> None:
        _merge(node, patch)
        node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)

    # -- its answers

    def answer(self, method: str, target: str, body: dict[str, Any], token: str) -> tuple[int, dict[str, Any], int]:
        """Return status, body, and the seconds of Retry-After."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        known = _right(method, path)
        if known is None:
            return *_status(404, "no such path"), 0
        call = Call(known[0], path, body)
        self.before(call)
        with self.lock:
            self.calls.append(call)
            if token != f"Bearer {self.token}":
                return *_status(401, "Unauthorized"), 0
            if known[0] not in self.rights:
                return *_status(403, f"cannot {known[0][2]} {known[0][1]}"), 0
            self._move_on()
            match known[0][1:]:
                case "nodes", verb:
                    return *self._node(verb, known[1], body), 0
                case "pods", "list":
                    [selector] = query["fieldSelector"]
                    node = selector.removeprefix("spec.nodeName=")
                    return 200, {"kind": "PodList", "items": [pod.shown() for pod in self.pods if pod.node == node]}, 0
                case "pods", "delete":
                    return self._delete(known[1], body)
                case _:
                    return self._evict(known[1], body)

    def _node(self, verb: str, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        node = self.nodes.get(name)
        if node is None:
            return _status(404, f'nodes "{name}" not found')
        if verb == "patch":
            if body["metadata"].pop("resourceVersion", node["metadata"]["resourceVersion"]) != node["metadata"]["resourceVersion"]:
                return _status(409, "the object has been modified")
            self._merge(node, body)
        return 200, node

    def _evict(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], int]:
        namespace, _, short = name.partition("/")
        assert body["apiVersion"] == "policy/v1" and body["kind"] == "Eviction"
        assert (body["metadata"]["namespace"], body["metadata"]["name"]) == (namespace, short)
        if answers := self.refusals.get(short):
            refusal = answers[0] if len(answers) == 1 and short in self.stubborn else answers.pop(0)
            return refusal.status, _status(refusal.code or refusal.status, refusal.message)[1], refusal.retry_after
        options = body.get("deleteOptions") or {}
        pod = self._find(name, options)
        if not isinstance(pod, Pod):
            return *pod, 0
        if pod.deletion is None and pod.phase == "Running" and pod.app in self.minimum:
            healthy, needed = self._healthy(pod.app), self.minimum[pod.app]
            if healthy <= needed:
                code, found = _status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
                text = f"The disruption budget {pod.app} needs {needed} healthy pods and has {healthy} currently"
                found["details"] = {"causes": [{"reason": "DisruptionBudget", "message": text}]}
                return code, found, 0
        pod.end(options.get("gracePeriodSeconds"), self._clock())
        if pod.app in self.minimum:
            self.lowest[pod.app] = min(self.lowest.get(pod.app, 1_000), self._healthy(pod.app))
        return 201, {"kind": "Status", "status": "Success"}, 0

    def _delete(self, name: str, options: dict[str, Any]) -> tuple[int, dict[str, Any], int]:
        pod = self._find(name, options)
        if not isinstance(pod, Pod):
            return *pod, 0
        pod.end(options.get("gracePeriodSeconds"), self._clock())
        return 200, pod.shown(), 0

    def _find(self, name: str, options: dict[str, Any]) -> Pod | tuple[int, dict[str, Any]]:
        """Return the pod that is to be deleted, or the refusal."""
        pod = next((each for each in self.pods if f"{each.namespace}/{each.name}" == name), None)
        if pod is None:
            return _status(404, f'pods "{name}" not found')
        if (options.get("preconditions") or {}).get("uid", pod.uid) != pod.uid:
            return _status(409, "the UID in the precondition does not match")
        return pod


def _right(method: str, path: str) -> tuple[Right, str] | None:
    """Return what a call asks for, and the name of the object."""
    if found := re.fullmatch(r"/api/v1/nodes/([^/]+)", path):
        verbs = {"GET": "get", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
        return ("", "nodes", verbs[method]), found[1]
    if path == "/api/v1/pods" and method == "GET":
        return ("", "pods", "list"), ""
    if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/eviction)?", path):
        resource = "pods/eviction" if found[3] else "pods"
        return ("", resource, {"POST": "create", "GET": "get", "DELETE": "delete"}[method]), f"{found[1]}/{found[2]}"
    return None


def _status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed, and hang up."""


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            status, answer, retry_after = api.answer(self.command, self.path, body, self.headers.get("Authorization", ""))
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if retry_after:
                self.send_header("Retry-After", str(retry_after))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _certificates(folder: Path, authority_file: Path) -> Path:
    """Write the certificate of an authority as clusters have it, without key identifiers, and one of the server with its key; return
    that file."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("kubernetes", "apiserver")]
    now = datetime.now(UTC)

    def build(number: int) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(names[number]).issuer_name(names[0]).public_key(keys[number].public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        return builder.not_valid_after(now + timedelta(days=30))

    authority = build(0).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(keys[0], hashes.SHA256())
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    server = build(1).add_extension(address, critical=False).sign(keys[0], hashes.SHA256())
    authority_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    path = folder / "apiserver.pem"
    plain = serialization.NoEncryption()
    key = keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(key + server.public_bytes(serialization.Encoding.PEM))
    return path
