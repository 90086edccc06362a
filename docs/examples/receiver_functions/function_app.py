"""Receives reminders in Azure Functions: checks the signature, does the work once however often an event is delivered."""

import logging
import os

import azure.functions as func
import tocsin
from azure.core.exceptions import ResourceExistsError
from azure.data.tables.aio import TableServiceClient

STORAGE = os.environ["AzureWebJobsStorage"]  # noqa: SIM112

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)  # the signature is what lets callers in


@app.route("reminders", methods=["POST"])
async def remind(req: func.HttpRequest) -> func.HttpResponse:
    try:
        # The channel's secret; two of them, with a space between, while it is being rotated.
        delivery = tocsin.verify(req.headers, req.get_body(), os.environ["TOCSIN_SECRET"].split())
    except tocsin.BadDelivery as why:
        logging.warning("refused: %s", why)
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
