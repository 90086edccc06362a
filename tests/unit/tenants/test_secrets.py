"""Objects with a secret do not show it when they are printed, as tracebacks and logs do."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from shared.delivery.channels.model import Channel, ChannelOut
from shared.delivery.channels.ports import Target
from shared.extras.bigben.model import Processor
from shared.scheduler.ingest.messages import ProducerMessage
from shared.tenants.model import KeyMade, SecretOut

SECRET = "tell-nobody"
HTTP = {"type": "http", "url": "https://example.com/", "headers": {"Authorization": SECRET}}
KAFKA = {"type": "kafka", "servers": "broker.example.com:9093", "topic": "t", "username": "me", "password": SECRET}
BUS = {"type": "servicebus", "namespace": "a.servicebus.windows.net", "entity": "q", "key_name": "send", "key": SECRET}
STATE = {"name": "default", "created": 0, "paused": False, "flow": {"breaker": "closed"}, "secret": SECRET}


@pytest.mark.parametrize("spec", [HTTP, KAFKA, BUS])
def test_channel_does_not_show_its_secrets(spec: dict[str, object]) -> None:
    channel = TypeAdapter(Channel).validate_python(spec)
    assert SECRET in channel.model_dump_json()
    shown = TypeAdapter(ChannelOut).validate_python(spec | STATE)
    for each in (channel, Target("acme", "default", channel, (SECRET,)), shown):
        assert SECRET not in f"{each} {each!r}"


@pytest.mark.parametrize(
    "holder",
    [
        KeyMade(key=SECRET, prefix="p", scopes=["events"], created=0),
        SecretOut(secret=SECRET),
        ProducerMessage(tenant="acme", key=SECRET, event={}),
        Processor(tenant="acme", type="HTTP", props={"headers": {"Authorization": SECRET}}),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_answer_or_message_does_not_show_its_secret(holder: object) -> None:
    assert SECRET not in f"{holder} {holder!r}"
