"""Takes a Kubernetes node out of service before an impact and puts it back: the hooks of an agent that runs as a pod on each node.

    prepare     cordons the node, evicts its pods within the time that the event leaves, and waits until they are gone
    emergency   cordons the node; asks once for the evictions, unless the event is a Freeze
    restore     uncordons the node, if an agent cordoned it
    verify      waits until the node is ready and no longer cordoned by an agent
    start       before the agent starts: uncordons the node if the agent's folder was lost while the node was cordoned

The node's annotation `tocsin/cordoned-for` says that an agent cordoned it, and for which event. A node that somebody else cordoned stays
cordoned. Each hook may be run twice, and ended anywhere. Pods of DaemonSets, static pods and pods that have ended stay.

Pods leave by the Eviction API, which obeys PodDisruptionBudgets; none is deleted. With `prepare --delete-refused`, pods that it still
refuses seconds before a Preempt or a Terminate are deleted, so that they can end properly before their machine is lost. Each keeps a
grace period of at least a second. The role needs the verb delete on pods for that.

It needs only Python, and calls the API server as the pod's service account. The agent passes the event in TOCSIN_... variables.

Variables: NODE_NAME, the node; KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which each pod has; SERVICE_ACCOUNT, a folder with
`token` and `ca.crt` in place of the usual one.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

CORDONED_FOR: Final = "tocsin/cordoned-for"
"""The annotation of a node that an agent cordoned. Its value is the event's id."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a static pod, which ends with its machine only."""
ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
BUSY: Final = frozenset({401, 408, 429, 500, 502, 503, 504})
"""Answers after which a call is repeated. 401: the token was being replaced."""

# Seconds.
DEADLINE: Final = 60.0
"""Time limit of a hook where the agent names none."""
RESERVE: Final = 2.0
"""Time that is kept before the agent's limit, and before the impact, to say which pods are left."""
SHORTEST: Final = 5.0
"""With less time than this before the impact, only the agent's limit counts: the agent tries again until the impact comes."""
ANSWER: Final = 5.0
"""Time limit of one call."""
PAUSE: Final = 1.0
"""Shortest pause before a call is repeated, and between two looks at the node's pods."""
LAST: Final = 10.0
"""Time before the impact in which `prepare --delete-refused` deletes the pods whose eviction is refused."""
SETTLED: Final = 2.0
"""Time in which pods still come to a cordoned node, because the scheduler has not noticed it. Pods that come later tolerate the cordon:
they would come again for ever, and stay."""
EVICTIONS: Final = 8
"""Evictions that are asked for at the same time."""
NO_TIME: Final = "no time was left to ask"


class Failed(Exception):
    """The hook could not do its work. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the API server. retry_after: seconds that it asks to wait, 0 for none."""

    status: int
    body: dict[str, Any]
    retry_after: float = 0.0

    @property
    def refusal(self) -> str:
        """The reason for which the server refused; '' if it did not. A refusal can come with status 201, as a Status of its own."""
        if self.status < 300 and self.body.get("status") != "Failure":
            return ""
        causes = (self.body.get("details") or {}).get("causes") or [{}]
        said = causes[0].get("message") or self.body.get("message") or ""
        return f"{self.body.get('code') or self.status} {said}".strip()


class ApiServer:
    """The API server, called as the pod's service account.

    ends_at: when calls are no longer repeated. gone_at: when the pods must be gone. Both on the monotonic clock.
    """

    def __init__(self, environment: Mapping[str, str], ends_at: float, gone_at: float) -> None:
        host, node = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("NODE_NAME", "")
        if not host:
            raise Failed("KUBERNETES_SERVICE_HOST is not set: run this in a pod")
        if not node:
            raise Failed("NODE_NAME is not set: set it from the field spec.nodeName in the pod's manifest")
        self._host, self._port = host, int(environment.get("KUBERNETES_SERVICE_PORT", "443"))
        self._account = Path(environment.get("SERVICE_ACCOUNT", ACCOUNT))
        self._ends_at, self._gone_at = ends_at, gone_at
        self.node = f"/api/v1/nodes/{quote(node)}"
        self.pods = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{quote(node)}"
        try:
            self._tls = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        except OSError as error:
            raise Failed(f"{self._account}/ca.crt cannot be read ({error}): the pod needs automountServiceAccountToken") from None
        # Authorities of clusters often lack the key identifiers that Python 3.13 asks for.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def left(self) -> float:
        """Return the seconds that are left to the hook."""
        return self._ends_at - time.monotonic()

    def left_to_pods(self) -> float:
        """Return the seconds that are left to pods to end."""
        return self._gone_at - time.monotonic()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Call once. Raises `OSError` or `http.client.HTTPException` if no answer comes."""
        # Read for each call, because the token is replaced while the pod runs.
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "tocsin-drain-node"}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        limit = min(ANSWER, max(self.left(), RESERVE))
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=limit, context=self._tls)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        asked = response.headers.get("Retry-After", "")
        return Answer(response.status, _parse(text), float(asked) if asked.isascii() and asked.isdigit() else 0.0)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """Call until the server answers. Raises `Failed` if it does not in time."""
        said = ""
        while True:
            pause = PAUSE
            try:
                answer = self.ask(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
            else:
                if answer.status not in BUSY:
                    return answer
                why, pause = answer.refusal, max(PAUSE, answer.retry_after)
            if self.left() <= 0:
                raise Failed(f"the API server did not answer {method} {path} in time: {why}")
            if why != said:
                print(f"the API server is asked again: {method} {path}: {why}", flush=True)
                said = why
            # However long a pause the server asks for, it is asked again before the end.
            time.sleep(max(0.0, min(pause, max(PAUSE, self.left() / 3), self.left())))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that must leave. grace: its own grace period in seconds. gone_by: seconds since 1970 when its grace period is over; None while
    nobody has asked it to end."""

    namespace: str
    name: str
    uid: str
    grace: int
    gone_by: float | None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def prepare(*, delete_refused: bool = False) -> None:
    """Cordon the node and evict its pods."""
    api = _api_server(before_impact=True)
    if not _cordon(api):
        print("the node does not exist: only its pods are evicted")
    _drain(api, delete_refused=delete_refused and os.environ.get("TOCSIN_TYPE") in ("Preempt", "Terminate"))
    print("no pod is left that must leave")


def emergency() -> None:
    """Cordon the node, and ask its pods to leave without waiting for them: the impact has begun."""
    api = _api_server()
    _cordon(api)
    # A frozen machine goes on with its pods in a moment.
    if os.environ.get("TOCSIN_TYPE") != "Freeze":
        for pod, refusal, _ in _evict(api, list(_pods(api).values())):
            print(f"{pod}: {refusal or 'asked to leave'}")


def restore() -> None:
    """Uncordon the node if an agent cordoned it."""
    _uncordon(_api_server())


def verify() -> None:
    """Wait until the node is ready and no longer cordoned by an agent."""
    api = _api_server()
    while True:
        node = _node(api)
        if node is None:
            print("the node does not exist: there is nothing to put back")
            return
        conditions = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions", [])}
        if CORDONED_FOR in _annotations(node):
            raise Failed("the node is still cordoned by this agent")
        if conditions.get("Ready") == "True":
            print("the node is ready" + (", and cordoned by somebody else" if _is_cordoned(node) else ""))
            return
        if api.left() <= 0:
            raise Failed(f"the node is not ready: its condition Ready is {conditions.get('Ready', 'unknown')}")
        time.sleep(PAUSE)


def start() -> None:
    """Uncordon a node that a former agent cordoned, whose folder was lost with the machine's disk: this agent does not know of it."""
    folder = os.environ.get("TOCSIN_STATE", "")
    if not folder:
        raise Failed("TOCSIN_STATE is not set: set it to the agent's folder")
    if Path(folder, "state.json").exists():
        print("the agent remembers what it did: nothing to do")
        return
    _uncordon(_api_server())


# -- the node


def _node(api: ApiServer) -> dict[str, Any] | None:
    """Return the node; None if it does not exist."""
    answer = api.call("GET", api.node)
    if answer.status == 404:
        return None
    if answer.refusal or answer.body.get("kind") != "Node":
        raise Failed(f"the node cannot be read: {answer.refusal or 'the answer is not of an API server'}")
    return answer.body


def _annotations(found: Mapping[str, Any]) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def _is_cordoned(node: Mapping[str, Any]) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _cordon(api: ApiServer) -> bool:
    """Cordon the node, unless somebody did. Returns false if it does not exist."""
    event = os.environ.get("TOCSIN_EVENT_ID") or "unknown"
    while (node := _node(api)) is not None:
        annotations = _annotations(node)
        if _is_cordoned(node):
            if CORDONED_FOR not in annotations:
                print("the node is cordoned already, by somebody else: it will stay cordoned")
                return True
            if annotations[CORDONED_FOR] == event:
                return True
        if _patch(api, node, event):
            print(f"the node is cordoned for {event}", flush=True)
            return True
    return False


def _uncordon(api: ApiServer) -> None:
    while (node := _node(api)) is not None:
        if CORDONED_FOR not in _annotations(node):
            print("no agent cordoned the node: nothing to do" + (", and it stays cordoned" if _is_cordoned(node) else ""))
            return
        if _patch(api, node, None):
            print("the node is uncordoned")
            return
    print("the node does not exist: nothing to do")


def _patch(api: ApiServer, node: Mapping[str, Any], event: str | None) -> bool:
    """Cordon the node for an event, or uncordon it. Returns false if it has changed or is gone: read it again.

    Patched in the version that was read, so that a cordon of somebody else in between is not taken for the agent's.
    """
    metadata = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {CORDONED_FOR: event}}
    answer = api.call("PATCH", api.node, {"metadata": metadata, "spec": {"unschedulable": True if event else None}})
    if answer.status in (404, 409):
        if api.left() <= 0:
            raise Failed("the node was changed by others all the time")
        return False
    if answer.refusal:
        raise Failed(f"the node cannot be changed: {answer.refusal}")
    return True


# -- its pods


def _pods(api: ApiServer) -> dict[str, Pod]:
    """Return the pods on the node that must leave, by their uids."""
    answer = api.call("GET", api.pods)
    if answer.refusal or answer.body.get("kind") != "PodList":
        raise Failed(f"the pods of the node cannot be listed: {answer.refusal or 'the answer is not of an API server'}")
    found = [_pod(each) for each in answer.body["items"] or [] if _must_leave(each)]
    return {pod.uid: pod for pod in found}


def _must_leave(pod: Mapping[str, Any]) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return (
        (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and MIRROR not in _annotations(pod)
        and not any(owner.get("controller") and owner.get("kind") == "DaemonSet" for owner in owners)
    )


def _pod(found: Mapping[str, Any]) -> Pod:
    metadata, grace = found["metadata"], found["spec"].get("terminationGracePeriodSeconds")
    ends = metadata.get("deletionTimestamp")
    gone_by = datetime.fromisoformat(ends).timestamp() if ends else None
    return Pod(metadata["namespace"], metadata["name"], metadata["uid"], 30 if grace is None else grace, gone_by)


def _drain(api: ApiServer, *, delete_refused: bool) -> None:
    """Evict the node's pods, and wait until they are gone. Raises `Failed` if some are left in the end."""
    leaving: set[str] = set()
    settled_at = 0.0
    refusals: dict[str, str] = {}
    # By uid: when a pod may be asked again; and the pods that agreed to leave.
    next_at: dict[str, float] = {}
    asked: set[str] = set()
    while True:
        present, now = _pods(api), time.monotonic()
        settled_at = settled_at or now + SETTLED
        if now < settled_at:
            leaving |= present.keys()
        left = [pod for uid, pod in present.items() if uid in leaving]
        if not left and (now >= settled_at or api.left() <= 0):
            return
        by_force = delete_refused and api.left_to_pods() <= LAST
        due = [pod for pod in left if _is_due(api, pod, 0.0 if by_force else next_at.get(pod.uid, 0.0), asked)]
        for pod, refusal, pause in _evict(api, due, by_force=by_force):
            if refusal == NO_TIME and pod.uid in refusals:
                continue
            if refusals.get(pod.uid) != refusal:
                print(f"{pod}: {refusal or 'leaves'}", flush=True)
            refusals[pod.uid] = refusal
            if not refusal:
                asked.add(pod.uid)
            # However long a pause the server asks for, the pod is asked again before the end.
            next_at[pod.uid] = time.monotonic() + max(PAUSE, min(pause, api.left() / 3))
        if api.left() <= 0:
            named = ", ".join(f"{pod} ({refusals.get(pod.uid) or 'it has not ended'})" for pod in left)
            raise Failed(f"still on the node: {named}")
        time.sleep(max(0.0, min(PAUSE, api.left())))


def _is_due(api: ApiServer, pod: Pod, next_at: float, asked: set[str]) -> bool:
    """Return true if the pod must be asked to leave: nobody has done so, or it takes more time than there is."""
    in_time = time.time() + api.left_to_pods() + RESERVE
    is_late = pod.gone_by is not None and pod.gone_by > in_time and _may_cut() and pod.uid not in asked
    return (pod.gone_by is None or is_late) and time.monotonic() >= next_at


def _may_cut() -> bool:
    """Return true if grace periods may be cut: the pods end with the machine anyway, unless it is only frozen."""
    return os.environ.get("TOCSIN_TYPE") != "Freeze"


def _evict(api: ApiServer, pods: Sequence[Pod], *, by_force: bool = False) -> list[tuple[Pod, str, float]]:
    """Ask once for the eviction of each pod. Returns each with its refusal, '' for none, and the pause that the server asks for.

    by_force: delete the pod if its eviction is refused.
    """
    # At the same time, because a webhook of the cluster can delay each by many seconds.
    with ThreadPoolExecutor(EVICTIONS) as pool:
        return list(pool.map(lambda pod: (pod, *_evict_one(api, pod, by_force)), pods))


def _evict_one(api: ApiServer, pod: Pod, by_force: bool) -> tuple[str, float]:
    if api.left() <= 0:
        return NO_TIME, 0.0
    # By its uid: a pod of the same name may be on another node by now.
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    fits = int(api.left_to_pods() - PAUSE)
    if _may_cut() and pod.grace > fits:
        # Not 0, which would remove the pod while its processes still run.
        options["gracePeriodSeconds"] = max(1, fits)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name, "namespace": pod.namespace}}
    path = f"/api/v1/namespaces/{quote(pod.namespace)}/pods/{quote(pod.name)}"
    try:
        answer = api.ask("POST", f"{path}/eviction", {**eviction, "deleteOptions": options})
        if by_force and answer.refusal and answer.status not in (404, 409):
            print(f"{pod}: {answer.refusal}; it is deleted", flush=True)
            answer = api.ask("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {str(error) or type(error).__name__}", 0.0
    # Gone, or replaced by another pod of its name.
    return ("", 0.0) if answer.status in (404, 409) else (answer.refusal, answer.retry_after)


# -- the program


def _api_server(*, before_impact: bool = False) -> ApiServer:
    """Return the API server, for the time that the agent gives the hook. before_impact: for the time until the impact, if that is less."""
    environment, now = os.environ, time.monotonic()
    seconds = max(float(environment.get("TOCSIN_DEADLINE_SECONDS") or DEADLINE) - RESERVE, PAUSE)
    try:
        impact = datetime.fromisoformat(environment.get("TOCSIN_NOT_BEFORE", "")).timestamp() - time.time() - RESERVE
    except ValueError:
        # The service did not say when.
        impact = 0.0
    if not before_impact or impact <= 0:
        return ApiServer(environment, now + seconds, now + seconds)
    # A pod may take longer than this run of the hook: the next one waits for it.
    return ApiServer(environment, now + (min(seconds, impact) if impact > SHORTEST else seconds), now + impact)


def _parse(text: bytes) -> dict[str, Any]:
    """Return the object of an answer; one with the text as its message if it is no object, as of a proxy on the way."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": text[:200].decode(errors="replace").strip()}


HOOKS: Final[Mapping[str, Callable[[], None]]] = {
    "prepare": prepare,
    "prepare --delete-refused": partial(prepare, delete_refused=True),
    "emergency": emergency,
    "restore": restore,
    "verify": verify,
    "start": start,
}


def main(arguments: Sequence[str]) -> int:
    """Run a hook and return its exit code: 1 if it failed, 2 if there is no such hook."""
    hook = HOOKS.get(" ".join(arguments))
    if hook is None:
        print(f"give one of these: {', '.join(HOOKS)}", file=sys.stderr)
        return 2
    try:
        hook()
    except Failed as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
