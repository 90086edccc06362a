"""An app for the devhost's tests: it shows what reached it, and waits for files where a test must hold it back.

The folder that SAMPLE_DIR names is where app and test meet: `started`, `release`, `finished` and *.jsonl.
"""

import asyncio
import base64
import json
import os
import time
from pathlib import Path

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
meeting = Path(os.environ.get("SAMPLE_DIR", "."))
bp = func.Blueprint()


def note(name: str, **fields: object) -> None:
    with (meeting / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(fields) + "\n")


def answer(function: str, req: func.HttpRequest) -> func.HttpResponse:
    document = {
        "function": function,
        "method": req.method,
        "url": req.url,
        "headers": dict(req.headers),
        "params": dict(req.params),
        "route": dict(req.route_params),
        "body": base64.b64encode(req.get_body()).decode(),
    }
    return func.HttpResponse(json.dumps(document), mimetype="application/json")


@app.function_name("noop")
@app.route("noop", methods=["GET"])
async def noop(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("ok")


@app.function_name("loop")
@app.route("loop", methods=["GET"])
async def loop(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(type(asyncio.get_running_loop()).__module__)


@app.function_name("echo")
@app.route("echo/{*rest}")
async def echo(req: func.HttpRequest) -> func.HttpResponse:
    return answer("echo", req)


@app.function_name("mirror")
@app.route("mirror", methods=["POST"])
async def mirror(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(req.get_body(), mimetype="application/octet-stream")


@app.function_name("item_1_int")
@app.route("items/{id:int}", methods=["GET"])
async def item_int(req: func.HttpRequest) -> func.HttpResponse:
    return answer("item_1_int", req)


@app.function_name("item_2_guid")
@app.route("items/{id:guid}", methods=["GET"])
async def item_guid(req: func.HttpRequest) -> func.HttpResponse:
    return answer("item_2_guid", req)


@app.function_name("item_3_any")
@app.route("items/{id}", methods=["GET"])
async def item_any(req: func.HttpRequest) -> func.HttpResponse:
    return answer("item_3_any", req)


@app.function_name("item_4_fixed")
@app.route("items/fixed", methods=["GET"])
async def item_fixed(req: func.HttpRequest) -> func.HttpResponse:
    return answer("item_4_fixed", req)


@app.function_name("item_put")
@app.route("items/{id}", methods=["PUT"])
async def item_put(req: func.HttpRequest) -> func.HttpResponse:
    return answer("item_put", req)


@app.function_name("fire")
@app.route("items/{id}/fire", methods=["POST"])
async def fire(req: func.HttpRequest) -> func.HttpResponse:
    return answer("fire", req)


@bp.function_name("optional")
@bp.route("optional/{id?}", methods=["GET"])
async def optional(req: func.HttpRequest) -> func.HttpResponse:
    return answer("optional", req)


@bp.function_name("plain")
@bp.route("plain", methods=["GET"])
def plain(req: func.HttpRequest) -> func.HttpResponse:
    return answer("plain", req)


@bp.function_name("boom")
@bp.route("boom")
async def boom(req: func.HttpRequest) -> func.HttpResponse:
    raise RuntimeError("boom was asked for")


@bp.function_name("reply")
@bp.route("reply", methods=["GET"])
async def reply(req: func.HttpRequest) -> func.HttpResponse:
    response = func.HttpResponse(
        b"\x00\xff",
        status_code=207,
        headers={"X-Thing": "a b", "Content-Length": "999", "ETag": '"1"', "Content-Type": "application/x-thing"},
    )
    response.headers.add("Set-Cookie", "one=1; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure")
    response.headers.add("Set-Cookie", "two=2; Domain=example.org; Expires=Wed, 21 Oct 2026 07:28:00 GMT")
    return response


@bp.function_name("gate")
@bp.route("gate", methods=["GET", "POST"])
async def gate(req: func.HttpRequest) -> func.HttpResponse:
    (meeting / "started").touch()
    while not (meeting / "release").exists():  # noqa: ASYNC110  the test is another process
        await asyncio.sleep(0.02)
    (meeting / "finished").touch()
    return func.HttpResponse("through")


@bp.function_name("hang")
@bp.route("hang", methods=["GET"])
def hang(req: func.HttpRequest) -> func.HttpResponse:
    (meeting / "started").touch()
    time.sleep(600)
    return func.HttpResponse("never")


@bp.function_name("process")
@bp.route("process", methods=["GET"])
async def process(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(str(os.getpid()))


@bp.function_name("environment")
@bp.route("environment/{name}", methods=["GET"])
async def environment(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(os.environ.get(req.route_params["name"], ""))


@app.function_name("work")
@app.queue_trigger(arg_name="msg", queue_name="%SAMPLE_QUEUE%", connection="AzureWebJobsStorage")
async def work(msg: func.QueueMessage) -> None:
    text = msg.get_body().decode()
    note(
        "work",
        id=msg.id,
        body=text,
        count=msg.dequeue_count,
        inserted=msg.insertion_time and msg.insertion_time.isoformat(),
        expires=msg.expiration_time and msg.expiration_time.isoformat(),
        visible=msg.time_next_visible and msg.time_next_visible.isoformat(),
        receipt=msg.pop_receipt,
        pid=os.getpid(),
    )
    while text == "wait" and not (meeting / "release").exists():  # noqa: ASYNC110  the test is another process
        await asyncio.sleep(0.02)
    if text == "fail":
        raise ValueError("the message said so")


@app.function_name("work_poison")
@app.queue_trigger(arg_name="msg", queue_name="%SAMPLE_QUEUE%-poison", connection="AzureWebJobsStorage")
async def work_poison(msg: func.QueueMessage) -> None:
    note("poison", body=msg.get_body().decode())


@app.function_name("tick")
@app.timer_trigger(arg_name="timer", schedule="%SAMPLE_SCHEDULE%", run_on_startup=True)
async def tick(timer: func.TimerRequest) -> None:
    note("tick", past_due=timer.past_due, status=timer.schedule_status, schedule=timer.schedule, pid=os.getpid())


app.register_functions(bp)
