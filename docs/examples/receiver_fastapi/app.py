"""Receives reminders with FastAPI: checks the signature, does the work once however often an event is delivered."""

import os
import sqlite3

import tocsin
from fastapi import FastAPI, Request, Response

# The channel's secret; two of them, with a space between, while it is being rotated.
SECRETS = os.environ["TOCSIN_SECRET"].split()

app = FastAPI()
store = sqlite3.connect(os.environ.get("REMINDERS", "reminders.db"), autocommit=True, check_same_thread=False)
store.execute("CREATE TABLE IF NOT EXISTS reminders (event TEXT PRIMARY KEY, text TEXT)")


@app.post("/hooks/reminders")
async def remind(request: Request) -> Response:
    try:
        delivery = tocsin.verify(request.headers, await request.body(), SECRETS)
    except tocsin.BadDelivery as why:
        print(f"refused: {why}")
        return Response(status_code=401)
    match delivery.payload:
        case {"text": str(text)}:
            pass
        case _:
            # Not worth another try: the event becomes a dead letter, where it can be looked at.
            print(f"not a reminder: event {delivery.id}")
            return Response(status_code=422)
    # The effect itself is keyed by the event's id, so a second delivery changes nothing.
    store.execute("INSERT OR IGNORE INTO reminders VALUES (?, ?)", (delivery.id, text))
    return Response(status_code=204)


@app.get("/reminders")
async def reminders() -> list[str]:
    return [text for (text,) in store.execute("SELECT text FROM reminders")]
