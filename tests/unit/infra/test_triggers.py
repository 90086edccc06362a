"""The functions are bound to resources that infra/ creates and names."""

from __future__ import annotations

from typing import Any

import azure.functions as func
import pytest

from shared.app.timers import PERIODS
from shared.app.triggers import queue_functions
from shared.core.setting_names import CONNECTION, MIRROR
from shared.storage.names import POISON_QUEUES

from . import code_facts
from .snapshots import alarms, deployed


async def no_app() -> Any:
    """Never called: functions are only listed."""
    raise AssertionError


def bindings(blueprint: func.Blueprint) -> list[Any]:
    """The triggers of a blueprint's functions."""
    app = func.FunctionApp()
    app.register_functions(blueprint)
    return [binding for function in app.get_functions() for binding in function.get_bindings()]


@pytest.mark.parametrize("connection", [CONNECTION, MIRROR])
def test_each_queue_has_its_function_and_each_connection_its_settings(connection: str) -> None:
    found = bindings(queue_functions(no_app, connection))
    # The sweep takes what the host puts into the others.
    assert {binding.queue_name for binding in found} == code_facts.queues() - set(POISON_QUEUES)
    assert {binding.connection for binding in found} == {connection}
    needed = {f"{connection}__{what}" for what in ("queueServiceUri", "credential", "clientId")}
    assert needed <= set(deployed("mirrored").settings())


def test_every_job_of_the_sweep_is_watched() -> None:
    queries = [query for name, query in alarms(deployed("defaults")).items() if name in ("timer-silent", "retention-silent")]
    assert all(any(f'"{timer}"' in query for query in queries) for timer in PERIODS)
