"""A producer: puts an event, and one that is wrong, into the queue `tocsin-ingest`."""

import json
import os

from azure.storage.queue import QueueClient, TextBase64EncodePolicy

STORAGE = os.environ.get("STORAGE", "UseDevelopmentStorage=true")  # the emulator of `make run`
KEY = os.environ.get("TOCSIN_KEY", "local-demo-key")

events = [{"delay": "PT2S", "payload": {"order": 17}}, {"delay": "two seconds", "payload": {"order": 18}}]

with QueueClient.from_connection_string(STORAGE, "tocsin-ingest", message_encode_policy=TextBase64EncodePolicy()) as queue:
    queue.send_message(json.dumps({"tenant": "demo", "key": KEY, "events": events}), time_to_live=-1)
