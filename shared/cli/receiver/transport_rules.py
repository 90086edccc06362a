"""The judgement of bodies, headers and connections. Pure functions."""

from __future__ import annotations

from typing import Final

from ...core.readable import readable_duration
from ..findings import Line, Result
from .judging import all_of, ms_text, names, not_checked
from .seen import ReceiverSeen

SOON: Final = 2.0
"""A server that means to keep an unused connection keeps it for more seconds than these."""


def judge_connections(seen: ReceiverSeen) -> Line:
    first, second = seen.first("delivery by its clock") or seen.first("delivery"), seen.first("second")
    new = [each.ms for step in seen.steps.values() for each in step.answers if not each.used and each.status is not None]
    cost = f"; a request over a new one takes {ms_text(sorted(new)[len(new) // 2])}" if new else ""
    means = "Each delivery then needs a new connection, with TLS a slow one."
    if second is not None and second.used and second.status is None and not second.timed_out:
        means = (
            "The service sends such a delivery again at once, as the next attempt. A receiver that does not know duplicates does it twice."
        )
        do = "Announce the end of a connection with the header connection: close, or keep it open for more than 15 s."
        return Line("connections", "bad", f"the second request over one: {second.text}", means, do)
    if second is not None and second.used and second.status is not None:
        return Line("connections", "ok", f"a second request went over the same connection in {ms_text(second.ms)}")
    if seen.closed_unused is not None:
        found = f"closed within {readable_duration(round(seen.closed_unused * 1000))} without a request{cost}"
        if seen.closed_unused > SOON:
            return Line("connections", "ok", found)
        return Line("connections", "look", found, means, "Keep connections open for more than 15 s.")
    if seen.closed_at_once:
        do = "Keep connections open for more than 15 s, or announce their end with the header connection: close."
        return Line("connections", "look", f"closed right after an answer, unannounced{cost}", means, do)
    if first is not None and first.unread:
        do = "Answer with a short body, or with none (204)."
        return Line("connections", "look", f"closed, because the answer's body was not over{cost}", means, do)
    if first is not None and not first.says_kept:
        do = "Speak HTTP/1.1 with keep-alive in the receiver and in the proxies before it."
        return Line("connections", "look", f"closed after each answer{cost}", means, do)
    if second is not None and second.timed_out:
        return Line(
            "connections", "bad", f"the second request over one: {second.text}", "Such deliveries fail.", "Look at the server's log."
        )
    return not_checked("connections", seen)


def judge_empty(seen: ReceiverSeen) -> Line | None:
    found = all_of(seen, "empty", "null")
    if found is None:
        return None
    texts = {"empty": "no body", "null": "null"}
    figures = {name: answer.status for name, answer in found}
    if broken := [(texts[name], answer) for name, answer in found if answer.broken]:
        forged = seen.first("forged")
        if len(broken) == 1 and forged is not None and forged.broken and forged.status == broken[0][1].status:
            means = "A body that is empty may count as unsigned, and the receiver fails for those."
            return Line("empty", "unseen", names(broken), means, "See the line about the signature.", figures)
        means = "The receiver fails on an event without a payload: it is tried again until it is a dead letter."
        return Line("empty", "bad", names(broken), means, "Check the body's shape, and answer 422 for one that is not expected.", figures)
    return Line("empty", "ok", names([(texts[name], answer) for name, answer in found]), figures=figures)


def _size(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} bytes"


def judge_large(seen: ReceiverSeen) -> Line | None:
    answer = seen.first("large")
    if answer is None:
        return None
    size = seen.sizes["large"]
    taken = max([each for name, each in seen.sizes.items() if (found := seen.first(name)) is not None and found.accepted], default=0)
    figures = {"bytes": size, "status": answer.status, "accepted_bytes": taken}
    if answer.accepted:
        return Line("large", "ok", f"{_size(size)} was accepted", figures=figures)
    rest = f"; {_size(taken)} was accepted" if taken else ""
    spaced = seen.first("spaced")
    if not taken and spaced is not None and not spaced.accepted and spaced.status == answer.status:
        means = "The spaces that fill the body are refused, whatever its size."
        return Line("large", "unseen", answer.text, means, "See the line about bytes.", figures)
    means = "Events with a payload of that size become dead letters." if answer.outcome == "final" else "Events of that size fail."
    do = "Raise the limit of the body in the receiver and in the proxies before it. If your events are smaller, give --largest BYTES."
    return Line("large", "bad", f"{_size(size)}: {answer.text}{rest}", means, do, figures)


def judge_headers(seen: ReceiverSeen) -> Line | None:
    found = all_of(seen, "longest id", "large header")
    if found is None:
        return None
    figures = {name.replace(" ", "_"): answer.status for name, answer in found}
    (_, id), (_, header) = found
    if not id.accepted:
        means = "Ids of events have up to 200 characters. This one did not fit, perhaps in a column of the store."
        return Line("headers", "bad", f"an id of 200 characters: {id.text}", means, "Make room for 200 characters.", figures)
    if not header.accepted:
        means = "An event may set up to 4 KiB of headers. Such events fail here."
        do = "Raise the limit of headers in the receiver and its proxies, if your events set headers."
        return Line("headers", "look", f"4 KiB of headers: {header.text}", means, do, figures)
    return Line("headers", "ok", "an id of 200 characters, and 4 KiB of headers were accepted", figures=figures)


def judge_slow(seen: ReceiverSeen) -> Line | None:
    answer = seen.first("slow")
    if answer is None:
        return None
    figures = {"status": answer.status, "early": answer.early}
    if answer.accepted and answer.early:
        means = "The answer came before the body, so the signature cannot have been checked, nor the work stored."
        return Line(
            "slow", "bad", "2xx before the body had arrived", means, "Read the whole body, verify it, store the work, then answer.", figures
        )
    if answer.accepted:
        return Line("slow", "ok", "a body in pieces was accepted", figures=figures)
    means = "The receiver does not wait for a body that comes slowly, as over a bad line."
    return Line("slow", "bad", f"a body in pieces: {answer.text}", means, "Wait some seconds for the rest of a body.", figures)


def judge_idle(seen: ReceiverSeen) -> Line | None:
    answer, idle = seen.first("idle"), seen.idle
    if idle is not None and idle.closed_after is not None:
        closed = readable_duration(round(idle.closed_after * 1000))
        figures = {"closed_after_s": round(idle.closed_after, 1)}
        return Line("idle", "ok", f"an unused connection was closed after {closed}", figures=figures)
    if answer is None:
        # Nothing to leave unused: the line about connections says why.
        return Line("idle", "ok", "no connection stays open") if idle is None and not seen.stopped else None
    waited = "" if idle is None else f" after {readable_duration(round(idle.waited * 1000))}"
    if answer.status is not None:
        result: Result = "ok" if answer.accepted else "look"
        means, do = ("", "") if answer.accepted else ("A delivery over an unused connection was refused.", "Look at the endpoint's log.")
        return Line("idle", result, f"an unused connection{waited}: {answer.text}", means, do)
    if answer.timed_out:
        means = (
            "Something on the way, such as a load balancer, forgot the connection without closing it: deliveries wait for the time limit."
        )
        do = "Let the load balancer or firewall keep idle connections for more than 15 s, or close them in order."
        return Line("idle", "bad", f"an unused connection{waited}: {answer.text}", means, do)
    means = "The service sends such a delivery again at once, as the next attempt."
    do = "Keep idle connections for more than 15 s, so that this stays rare."
    return Line("idle", "look", f"an unused connection{waited}: {answer.text}", means, do)
