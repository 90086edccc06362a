"""The settings of a node's log outputs: which are read, what is refused, and that no text shows a secret."""

from __future__ import annotations

import pytest

from devhost.pages import settings
from shared.core.node_logs.datagrams import JOURNALD
from shared.core.node_logs.outputs import SETTINGS, BadOutput, read_outputs
from tests.paths import ROOT

SECRET = "s3cret-of-the-collector"


def test_nothing_is_sent_unless_a_setting_says_where() -> None:
    assert not read_outputs({"OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}", "TOCSIN_LOG_JOURNALD": "false"})


def test_the_standard_names_of_opentelemetry_hold() -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"Api-Key={SECRET},a=b%20c"}
    base = {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example:4318/otlp/", **headers}
    found = read_outputs(base)
    assert found.otlp == "https://collector.example:4318/otlp/v1/logs" and found.headers == {"api-key": SECRET, "a": "b c"}
    logs = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "https://logs.example/in", "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "a=d"}
    found = read_outputs({**base, **logs, "OTEL_RESOURCE_ATTRIBUTES": "env=test", "OTEL_SERVICE_NAME": "mine"})
    assert (found.otlp, found.headers) == ("https://logs.example/in", {"api-key": SECRET, "a": "d"})
    assert found.attributes == {"env": "test", "service.name": "mine"} and SECRET in found.secrets and SECRET not in repr(found)
    assert read_outputs({**base, **logs}, otlp="http://localhost:4318").otlp == "http://localhost:4318/v1/logs"
    assert not read_outputs({**base, **logs, "OTEL_LOGS_EXPORTER": "none"}) and not read_outputs({**base, "OTEL_SDK_DISABLED": "true"})


def test_journald_and_syslog_by_name_and_by_address() -> None:
    assert read_outputs({}, journald=True).journald == JOURNALD == read_outputs({"TOCSIN_LOG_JOURNALD": "true"}).journald
    assert read_outputs({"TOCSIN_LOG_JOURNALD": "/tmp/socket"}).journald == "/tmp/socket"
    assert read_outputs({"TOCSIN_LOG_SYSLOG": "udp://10.0.0.5"}).syslog == ("10.0.0.5", 514)
    assert read_outputs({}, syslog="udp://[::1]:1514").syslog == ("::1", 1514)
    assert read_outputs({}, syslog="unix:/dev/log").syslog == "/dev/log"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://user:{SECRET}@collector.example"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://collector.example/?key={SECRET}"),
        ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", f"collector.example/{SECRET}"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", f"https://collector.example:99999/{SECRET}"),
        ("OTEL_EXPORTER_OTLP_HEADERS", SECRET),
        ("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={SECRET}%0d%0aother: x"),
        ("OTEL_EXPORTER_OTLP_HEADERS", f"api key={SECRET}"),
        ("TOCSIN_LOG_JOURNALD", "maybe"),
        ("TOCSIN_LOG_SYSLOG", "tcp://10.0.0.5:514"),
        ("TOCSIN_LOG_SYSLOG", "udp://syslog.example:514"),
    ],
)
def test_a_wrong_setting_is_named_without_its_secret(name: str, value: str) -> None:
    with pytest.raises(BadOutput) as refused:
        read_outputs({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example", name: value})
    assert str(refused.value).startswith(name) and SECRET not in str(refused.value)


def test_headers_are_not_sent_without_encryption_to_another_machine() -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}"}
    assert read_outputs({**headers, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}).headers
    with pytest.raises(BadOutput, match="without encryption"):
        read_outputs({**headers, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"})


def test_the_page_of_settings_has_those_of_nodes() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert page == settings.page() and [each.name for each in SETTINGS if f"| `{each.name}` |" not in page] == []
