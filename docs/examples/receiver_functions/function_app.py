"""Receives reminders and reports in Azure Functions: checks the signature, does the work once however often an event is delivered.

A reminder is done at once. A report takes minutes: its event is accepted, a queue holds the work, and the event is completed afterwards.
"""

import json
import logging
import os

import azure.functions as func
import tocsin
from azure.core.exceptions import ResourceExistsError
from azure.data.tables.aio import TableServiceClient
from azure.storage.queue import TextBase64EncodePolicy
from azure.storage.queue.aio import QueueClient

STORAGE = os.environ["AzureWebJobsStorage"]  # noqa: SIM112

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)  # the signature is what lets callers in


def verified(req: func.HttpRequest) -> tocsin.Delivery | None:
    try:
        # The channels' secrets, with spaces between; two of a channel while its secret is being rotated.
        return tocsin.verify(req.headers, req.get_body(), os.environ["TOCSIN_SECRET"].split())
    except tocsin.BadDelivery as why:
        logging.warning("refused: %s", why)
        return None


@app.route("reminders", methods=["POST"])
async def remind(req: func.HttpRequest) -> func.HttpResponse:
    delivery = verified(req)
    if delivery is None:
        return func.HttpResponse(status_code=401)
    match delivery.payload:
        case {"text": str(text)}:
            row = {"PartitionKey": delivery.channel, "RowKey": delivery.id, "text": text}
        case _:
            # Not worth another try: the event becomes a dead letter, where it can be looked at.
            logging.warning("not a reminder: event %s", delivery.id)
            return func.HttpResponse(status_code=422)
    async with TableServiceClient.from_connection_string(STORAGE) as service:
        table = await service.create_table_if_not_exists("Reminders")
        try:
            await table.create_entity(row)
        except ResourceExistsError:
            # The effect itself is keyed by the event's id, so a second delivery changes nothing.
            logging.info("delivered again: %s", delivery.id)
    return func.HttpResponse(status_code=204)


@app.route("reports", methods=["POST"])
async def accept(req: func.HttpRequest) -> func.HttpResponse:
    delivery = verified(req)
    if delivery is None:
        return func.HttpResponse(status_code=401)
    if delivery.work is None:
        logging.warning("the channel allows no long work: event %s", delivery.id)
        return func.HttpResponse(status_code=422)
    # The text holds the attempt's token: who reads the queue can complete the event.
    text = json.dumps({"id": delivery.id, "report": delivery.payload, "work": delivery.work.save()})
    async with QueueClient.from_connection_string(STORAGE, "reports", message_encode_policy=TextBase64EncodePolicy()) as queue:
        try:
            await queue.create_queue()
        except ResourceExistsError:
            logging.debug("the queue is there")
        await queue.send_message(text)
    # Only now: if this process ends before, the event is delivered again.
    return func.HttpResponse(status_code=202, headers=delivery.work.later())


@app.queue_trigger("message", "reports", "AzureWebJobsStorage")
async def write_report(message: func.QueueMessage) -> None:
    found = json.loads(message.get_body())
    work = tocsin.Work.load(found["work"])
    # Work that takes longer than `within` of the channel calls work.heartbeat_async() in between.
    async with TableServiceClient.from_connection_string(STORAGE) as service:
        table = await service.create_table_if_not_exists("Reports")
        # Keyed by the event's id: a second attempt writes the same row.
        await table.upsert_entity({"PartitionKey": "reports", "RowKey": found["id"], "text": json.dumps(found["report"])})
    try:
        await work.complete_async()
    except tocsin.Conflict:
        logging.info("another attempt was made, or the event was cancelled: %s", found["id"])
