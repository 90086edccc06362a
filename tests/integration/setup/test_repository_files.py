"""The files of the repository that tools read: locks, requirements, host.json, sample settings, the deployment and the Makefile."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shared.core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, Settings
from tests.paths import ROOT


def tracked() -> list[str]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if answer.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_lock_names_a_registry() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert [path for path, package in lock["packages"].items() if "resolved" in package] == []
    needle = b'"resolved": ' + b'"http'
    assert [name for name in tracked() if needle in (ROOT / name).read_bytes()] == []


@pytest.mark.parametrize("name", [".npmrc", *sorted(path.name for path in ROOT.glob("requirements*"))])
def test_no_configuration_names_a_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text and "index-url" not in text and "find-links" not in text


def test_every_requirement_is_pinned() -> None:
    for name in ["requirements.in", "requirements-dev.in", "requirements-generators.in"]:
        named = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith(("#", "-r "))]
        assert len(named) > (1 if "generators" in name else 10)
        for line in named:
            assert re.fullmatch(r"[a-z0-9-]+(\[[a-z,-]+\])?==[0-9][0-9.]*(b[0-9]+)?", line), f"{name}: {line}"


def test_the_host_file_holds_what_the_app_counts_on() -> None:
    host = json.loads((ROOT / "host.json").read_text())
    assert host["version"] == "2.0"
    # With it, the host would send a span for each poll of an empty queue: 260,000 a day from each instance.
    assert "telemetryMode" not in host
    assert host["functionTimeout"] == "00:10:00"
    # The host's own delete of a message of the ingest queue finds nothing: a warning for each message would cost more than the message.
    levels = host["logging"]["logLevel"]
    assert levels["Azure.Core"] == "Error"
    # Two lines for each invocation that succeeds would cost more than the invocation. None of these levels hides an error.
    assert levels["Function"] == levels["Host.Triggers"] == "Warning" and levels["Host.Results"] == "Error"
    # Printed lines, among them those of a trace, come as this category.
    assert levels.pop("Host.Function.Console") == "Information"
    assert set(levels.values()) == {"Warning", "Error"}
    assert host["logging"]["applicationInsights"]["samplingSettings"] == {"isEnabled": False}
    assert host["extensionBundle"] == {"id": "Microsoft.Azure.Functions.ExtensionBundle", "version": "[4.*, 5.0.0)"}
    assert host["extensions"]["http"]["routePrefix"] == "api"
    assert host["extensions"]["queues"] == {
        "batchSize": 16,
        "newBatchThreshold": 48,
        "maxPollingInterval": "00:00:02",
        "visibilityTimeout": "00:00:30",
        "maxDequeueCount": 5,
        "messageEncoding": "base64",
    }


def test_the_sample_settings_are_the_local_default(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())
    assert sample["IsEncrypted"] is False
    values = sample["Values"]
    assert values["FUNCTIONS_WORKER_RUNTIME"] == "python"
    assert values["FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"] == "17000000" and values["AzureWebJobsDisableHomepage"] == "true"
    assert values["AzureWebJobsStorage"] == values["TocsinStorage"] == "UseDevelopmentStorage=true"
    assert (values["TOCSIN_ADMIN_KEY"], values["TOCSIN_SIGNING_KEY"]) == (LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY)
    for name in [name for name in os.environ if name.upper().startswith("TOCSIN")]:
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.emulated and settings.local
    assert settings.receiver == "http://localhost:7072/"
    assert settings.egress_names == ("localhost", "127.0.0.0/8", "::1/128")


def test_the_deployment_holds_the_app_and_no_other_folder(tmp_path: Path) -> None:
    # The deployment tools read the file in git's syntax, so git itself decides here.
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text((ROOT / ".funcignore").read_text())
    listed = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"], cwd=tmp_path, input="\n".join(tracked()), capture_output=True, text=True
    )
    assert listed.returncode == 0, listed.stderr
    deployed = set(tracked()) - set(listed.stdout.splitlines())
    shared = {name for name in tracked() if name.startswith("shared/")}
    assert shared and deployed == {"function_app.py", "host.json", "requirements.txt"} | shared


def test_make_alone_lists_every_target() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    answer = subprocess.run([make], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert re.findall(r"^  make ([\w-]+)", answer.stdout, re.MULTILINE) == phony[1].split()
