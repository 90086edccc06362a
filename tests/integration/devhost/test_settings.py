"""Settings files and host.json, read as the host reads them."""

import json
from pathlib import Path
from typing import Any

import pytest

from devhost.host.settings import (
    HostOptions,
    QueueOptions,
    SettingsError,
    apply_values,
    connection,
    is_disabled,
    load_host,
    load_values,
    resolve,
    time_span,
)


def write(folder: Path, name: str, document: Any) -> None:
    (folder / name).write_text(json.dumps(document))


def test_own_settings_file_wins_over_the_sample(tmp_path: Path) -> None:
    assert load_values(tmp_path) == {}
    write(tmp_path, "local.settings.sample.json", {"Values": {"A": "sample"}})
    assert load_values(tmp_path) == {"A": "sample"}
    write(tmp_path, "local.settings.json", {"IsEncrypted": False, "Values": {"A": "own"}})
    assert load_values(tmp_path) == {"A": "own"}


def test_environment_wins_over_the_file() -> None:
    environ = {"A": "environment"}
    apply_values({"A": "file", "B": "file"}, environ)
    assert environ == {"A": "environment", "B": "file"}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"Values": []}', '{"Values": {"A": 1}}', '{"IsEncrypted": true, "Values": {"A": "x"}}'], ids=repr
)
def test_unusable_settings_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "local.settings.json").write_text(text)
    with pytest.raises(SettingsError, match=r"local\.settings\.json"):
        load_values(tmp_path)


def test_missing_host_json_means_the_defaults_of_the_host(tmp_path: Path) -> None:
    assert load_host(tmp_path) == HostOptions("api", QueueOptions(16, 8, 60.0, 0.0, 5, True))


def test_host_json_is_read(tmp_path: Path) -> None:
    queues = {
        "batchSize": 32,
        "newBatchThreshold": 4,
        "maxPollingInterval": "00:00:02",
        "visibilityTimeout": "00:00:30",
        "maxDequeueCount": 7,
        "messageEncoding": "none",
    }
    write(tmp_path, "host.json", {"version": "2.0", "extensions": {"http": {"routePrefix": "v/"}, "queues": queues}})
    assert load_host(tmp_path) == HostOptions("v", QueueOptions(32, 4, 2.0, 30.0, 7, False))


@pytest.mark.parametrize("queues", [{"batchSize": 33}, {"batchSize": 0}, {"batchSize": "x"}, {"maxPollingInterval": "2s"}], ids=repr)
def test_wrong_host_json_is_refused(tmp_path: Path, queues: dict[str, Any]) -> None:
    write(tmp_path, "host.json", {"extensions": {"queues": queues}})
    with pytest.raises(SettingsError, match=r"host\.json"):
        load_host(tmp_path)


@pytest.mark.parametrize(("text", "seconds"), [("00:00:02", 2.0), ("00:10:00", 600.0), ("1.02:00:00", 93600.0), ("00:00:00.25", 0.25)])
def test_time_span(text: str, seconds: float) -> None:
    assert time_span(text) == seconds


def test_percent_names_are_settings() -> None:
    assert resolve("%A%-%B%", {"A": "x", "B": "y"}) == "x-y"
    with pytest.raises(SettingsError, match="'C'"):
        resolve("%C%", {})


def test_connection_is_found_under_both_names_and_identities_are_refused() -> None:
    assert connection("", {"AzureWebJobsStorage": "x"}) == "x"
    assert connection("Mine", {"AzureWebJobsMine": "y"}) == "y"
    with pytest.raises(SettingsError, match="identity"):
        connection("Mine", {"Mine__queueServiceUri": "https://x"})
    with pytest.raises(SettingsError, match="does not exist"):
        connection("Mine", {})


def test_a_function_is_switched_off_by_the_setting_of_its_name() -> None:
    assert is_disabled("sweep", {"AzureWebJobs.sweep.Disabled": "True"}) and is_disabled("sweep", {"AzureWebJobs.sweep.Disabled": "1"})
    assert not is_disabled("sweep", {"AzureWebJobs.sweep.Disabled": "false", "AzureWebJobs.fire_shard.Disabled": "true"})
