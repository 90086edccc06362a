"""The agent on Kubernetes: the manifest, the settings, the image and the program agree, and give no more than the hooks need."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from infra.agent.kubernetes import drain_node
from shared.maintenance.agent.config.checking import list_doubts
from shared.maintenance.agent.config.config import HEALTH, Config, load
from tests.kubernetes_api import manifest
from tests.paths import ROOT
from tests.waiting import run

FOLDER = ROOT / "infra" / "agent" / "kubernetes"
CUSTOM = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
IMAGE = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
POD = manifest("DaemonSet")["spec"]["template"]["spec"]
[AGENT] = POD["containers"]
[START] = POD["initContainers"]
PROGRAM = "/opt/tocsin/drain_node.py"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The settings as the agent reads them, with the files where a pod has them."""
    shutil.copy(FOLDER / "agent.toml", tmp_path)
    (tmp_path / "agent.key").write_text("key-of-the-cluster-0123456789")
    for path in tmp_path.iterdir():
        path.chmod(0o400)
    return load(tmp_path / "agent.toml", {})


def mounts(container: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return the volumes of a container by the paths at which they are."""
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def test_settings_are_whole_and_leave_no_doubt_but_that_this_machine_is_no_pod(config: Config) -> None:
    assert [doubt for doubt in list_doubts(config) if "is not a program" not in doubt and "cannot be written" not in doubt] == []
    assert config.app is not None and config.settings.lead is not None
    assert config.settings.hooks["prepare"] * 2 <= config.settings.lead < 600


def test_each_hook_of_the_settings_is_one_of_the_programs(config: Config) -> None:
    assert {kind: hook.command for kind, hook in config.hooks.items()} == {
        kind: ("/usr/local/bin/python3", PROGRAM, kind) for kind in ("prepare", "emergency", "restore", "verify")
    }
    assert {"start", *config.hooks} <= set(drain_node.HOOKS)
    assert START["command"] == ["/usr/local/bin/python3", PROGRAM, "start"]
    assert f"COPY --chmod=755 infra/agent/kubernetes/drain_node.py {PROGRAM}\n" in IMAGE


def test_pod_has_what_the_agent_reads_where_it_looks(config: Config) -> None:
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", IMAGE, re.MULTILINE)
    assert json.loads(entry) == ["tocsin", "agent", "--config", "/etc/tocsin/agent.toml"]
    assert {path: name for path, name in mounts(AGENT).items() if name == "settings"} == {
        f"/etc/tocsin/{name}": "settings" for name in CUSTOM["secretGenerator"][0]["files"]
    }
    state = str(config.state)
    assert mounts(AGENT)[state] == mounts(START)[state] == "state" and mounts(AGENT)["/tmp"] == "tmp"
    assert {each["name"]: each.get("value") for each in START["env"]} == {"NODE_NAME": None, "TOCSIN_STATE": state}
    assert AGENT["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    [settings] = [volume["secret"] for volume in POD["volumes"] if volume["name"] == "settings"]
    # Without subPath, the folder of the volume would be writable by all.
    assert settings["defaultMode"] == 0o400 and all("subPath" in each for each in AGENT["volumeMounts"] if each["name"] == "settings")
    assert settings["secretName"] == CUSTOM["secretGenerator"][0]["name"]


def test_probes_ask_the_agent_on_the_nodes_own_network() -> None:
    for name, path in (("livenessProbe", "/live"), ("readinessProbe", "/ready")):
        get = AGENT[name]["httpGet"]
        assert (f"{get['host']}:{get['port']}", get["path"]) == (HEALTH, path)
    assert POD["hostNetwork"] and POD["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_agent_runs_on_every_node_and_outlives_what_it_evicts() -> None:
    assert POD["tolerations"] == [{"operator": "Exists"}] and POD["priorityClassName"] == "system-node-critical"
    assert manifest("DaemonSet")["metadata"]["namespace"] == manifest("Namespace")["metadata"]["name"] == CUSTOM["namespace"]


def test_pod_has_no_rights_on_its_machine_but_its_folder() -> None:
    for container in (AGENT, START):
        security = container["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"] and "privileged" not in security
    assert [volume["hostPath"]["path"] for volume in POD["volumes"] if "hostPath" in volume] == ["/var/lib/tocsin-agent"]
    assert not POD.get("hostPID") and not POD.get("hostIPC")


def test_image_is_built_from_files_that_exist_and_named_once() -> None:
    [image] = CUSTOM["images"]
    assert {AGENT["image"], START["image"]} == {image["name"]}
    assert f"-t {image['newName']}:{image['newTag']} " in IMAGE
    for path in ("devhost/wheel.sh", "requirements-agent.txt", "infra/agent/kubernetes/drain_node.py"):
        assert (ROOT / path).exists() and path in IMAGE
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert not {"infra", "devhost", "requirements-agent.txt"} & set(ignored)


def test_key_gets_into_no_commit_and_no_image() -> None:
    key = "infra/agent/kubernetes/agent.key"
    assert key in (ROOT / ".dockerignore").read_text().splitlines()
    assert run(["git", "check-ignore", key], cwd=ROOT).stdout.strip() == key
