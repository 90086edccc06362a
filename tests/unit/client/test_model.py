"""The client's models: the client knows every member of the service's answers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic import BaseModel

from shared.client import model
from shared.scheduler import model as service
from shared.scheduler.recurring import model as recurring


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (service.EventOut, model.Event),
        (service.HeldOut, model.ChannelHold),
        (service.AttemptOut, model.Attempt),
        (service.StatsOut, model.Stats),
        (service.ChannelStats, model.ChannelStats),
        (recurring.ScheduleOut, model.Schedule),
        (recurring.OccurrenceOut, model.Occurrence),
    ],
)
def test_client_reads_every_member_that_the_service_sends(theirs: type[BaseModel], ours: type[Any]) -> None:
    assert theirs.model_fields.keys() - {each.name for each in fields(ours)} == set()
