"""The judgement of signatures, and of the bytes that they cover. Pure functions."""

from __future__ import annotations

from ..findings import Line
from .judging import all_of, failed, names, taken, verifies
from .seen import ReceiverSeen


def judge_signature(seen: ReceiverSeen) -> Line | None:
    found = all_of(seen, "forged", "unsigned", "changed")
    after = seen.first("after forged")
    if found is None or after is None:
        return None
    texts = {"forged": "a wrong secret", "unsigned": "no signature", "changed": "a changed body"}
    shown = [(texts[name], answer) for name, answer in found]
    figures = {name: answer.status for name, answer in found}
    do = "Verify each request before anything else: tocsin.verify, or a library of standardwebhooks.com, with the bytes of the body."
    if wrong := [texts[name] for name, _ in found if taken(seen, name)]:
        means = "Anybody who knows the URL can trigger the receiver's work."
        return Line("signature", "bad", f"accepted with {', '.join(wrong)}", means, do, figures)
    if any((seen.effects_counted(name) or 0) > 0 for name, _ in found):
        means = "The work is done before the signature is checked."
        return Line("signature", "bad", "refused, and the work was done all the same", means, do, figures)
    if not after.accepted:
        means = "The event itself, sent after a forged request with its id, was refused. Anybody who guesses an id can block an event."
        return Line("signature", "bad", f"valid after forged: {after.text}", means, do, figures)
    if seen.effects("after forged") == 0 and seen.effects("second") not in (0, None):
        means = "The receiver took the event itself for a duplicate of a forged request. Anybody who guesses an id can block an event."
        return Line(
            "signature", "bad", "a forged request counts as the event", means, "Store an id only after its signature is verified.", figures
        )
    if quiet := [(text, answer) for text, answer in shown if answer.accepted]:
        means = "The work is not done, but the service counts the event as delivered: a mistake in a rotation loses events."
        return Line("signature", "look", f"not worked on, {names(quiet)}", means, "Answer 401.", figures)
    if broken := [(text, answer) for text, answer in shown if answer.broken]:
        means = "The receiver fails instead of refusing. The service would try again, which is right, but your alarms will not know why."
        return Line("signature", "look", f"refused by failing: {names(broken)}", means, "Answer 401.", figures)
    # The service signs each of its requests, so it never gets the answer to one without a signature.
    if final := [(texts[name], answer) for name, answer in found if answer.outcome == "final" and name != "unsigned"]:
        means = (
            "The service does not try again after this status: with a mistake in a rotation of secrets, events become dead letters at once."
        )
        return Line("signature", "look", f"refused, {names(final)}", means, "Answer 401, which is tried again.", figures)
    return Line("signature", "ok", f"refused, {names(shown)}", figures=figures)


def _unverified(name: str) -> Line:
    means = "The receiver verifies no signature, so this check says nothing."
    return Line(name, "unseen", "nothing is verified", means, "See the line about the signature.")


def judge_timestamp(seen: ReceiverSeen) -> Line | None:
    found = all_of(seen, "old", "future")
    if found is None:
        return None
    if not verifies(seen):
        return _unverified("timestamp")
    texts = {"old": "6 minutes old", "future": "6 minutes in the future"}
    shown = [(texts[name], answer) for name, answer in found]
    figures = {name: answer.status for name, answer in found}
    if wrong := [texts[name] for name, _ in found if taken(seen, name)]:
        means = "Whoever has recorded a delivery can send it again at any later time."
        do = "Refuse requests whose webhook-timestamp is more than 300 s from the receiver's clock, as the libraries do."
        return Line("timestamp", "bad", f"accepted, though {' and '.join(wrong)}", means, do, figures)
    if quiet := [(text, answer) for text, answer in shown if answer.accepted]:
        means = "The work is not done, but the service counts the event as delivered: a wrong clock loses events."
        return Line("timestamp", "look", f"not worked on, {names(quiet)}", means, "Answer 401.", figures)
    if broken := [(text, answer) for text, answer in shown if answer.broken]:
        return Line(
            "timestamp", "look", f"refused by failing: {names(broken)}", "The receiver fails on such a time.", "Answer 401.", figures
        )
    return Line("timestamp", "ok", f"refused, {names(shown)}", figures=figures)


def judge_rotation(seen: ReceiverSeen) -> Line | None:
    found = all_of(seen, "right last", "right first", "newer scheme")
    if found is None:
        return None
    if not verifies(seen):
        return _unverified("rotation")
    figures = {name.replace(" ", "_"): answer.status for name, answer in found}
    texts = {"right last": "the right signature second", "right first": "the right one first", "newer scheme": "a v1a before it"}
    if broken := [(name, answer) for name, answer in found if answer.broken]:
        return failed("rotation", texts[broken[0][0]], broken[0][1])
    if wrong := [(name, answer) for name, answer in found if not taken(seen, name)]:
        means = "During a rotation the header holds a signature for each secret. Those deliveries fail."
        do = "Split webhook-signature at spaces, ignore other versions than v1, and accept the request if one signature is right."
        return Line("rotation", "bad", f"refused, {names([(texts[name], answer) for name, answer in wrong])}", means, do, figures)
    return Line("rotation", "ok", "one right signature of two is enough", figures=figures)


def judge_bytes(seen: ReceiverSeen) -> Line | None:
    answer = seen.first("spaced")
    if answer is None:
        return None
    if not verifies(seen):
        return _unverified("bytes")
    figures = {"status": answer.status}
    if answer.broken:
        return failed("bytes", "the same JSON with other spaces", answer)
    if taken(seen, "spaced"):
        return Line("bytes", "ok", "the same JSON with other spaces was accepted", figures=figures)
    means = "The receiver verifies a body that it has decoded and written again. Payloads with other spaces or escapes are refused."
    do = "Verify the bytes as they arrive, before JSON is parsed: express.raw, await request.body(), req.get_body()."
    return Line("bytes", "bad", f"the same JSON with other spaces: {answer.text}", means, do, figures)


def judge_text(seen: ReceiverSeen) -> Line | None:
    answer = seen.first("text")
    if answer is None:
        return None
    figures = {"status": answer.status}
    if answer.accepted:
        return Line("text", "ok", "emoji, direction marks, NUL and line breaks were accepted", figures=figures)
    spaced = seen.first("spaced")
    if spaced is not None and not spaced.accepted and answer.status == spaced.status:
        return Line(
            "text", "unseen", answer.text, "The signature is already refused for other reasons.", "See the line about bytes.", figures
        )
    if answer.broken or answer.status in (401, 403):
        means = "The receiver fails on letters beyond ASCII, on emoji, or on NUL, which some databases cannot store."
        do = "Look at the endpoint's log. Verify bytes, decode UTF-8, and refuse with 422 what cannot be stored."
        return Line("text", "bad", f"unusual UTF-8: {answer.text}", means, do, figures)
    return Line("text", "ok", f"an additional member was refused in order: {answer.status}", figures=figures)
