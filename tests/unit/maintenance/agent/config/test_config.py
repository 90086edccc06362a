"""The settings file: valid content, and that all faults are reported together, each with its place and a correct example."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from shared.core.http_exchange import HttpProxy
from shared.maintenance.agent.caller_probe import ProbeConsent
from shared.maintenance.agent.config.config import BadConfig, Config, load
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.hooks.runner import Hook
from shared.maintenance.agent.imds.client import API_VERSION, BASE
from shared.maintenance.agent.imds.identity import NodeSettings
from shared.maintenance.agent.policy import ActionRule
from tests.texts import assert_text

KEY = "an-agents-own-key"
FULL = """
state = "/srv/agent"

[node]
name = "n1"
vm = "vm_1"
scope = "avset-1"
location = "westeurope"
fault_domain = "2"

[imds]
url = "http://127.0.0.1:8080"
api_version = "2019-08-01"
poll_seconds = 0.5
stale_seconds = 30

[app]
url = "https://app.example/"
fleet = "search"
key_file = "key"
require_central = true
patience_seconds = 3

[maintenance]
lead_seconds = 45
lead_seconds_by_type = {Preempt = 0, Reboot = 90.5}
freeze_limit_seconds = 5
approve_failed = true
after_reboot = "prepare"
finish_prepare = false
near_seconds = 600
prepare_tries = 5
post_tries = 7

[[rules]]
type = "Freeze"
source = "Platform"
max_seconds = 0
action = "approve"

[[rules]]
resources = ["vm_1", "vm_2"]
action = "hold"

[hooks.prepare]
command = ["/usr/local/bin/leave", "--now"]
deadline_seconds = 20
environment = {MODE = "fast"}

[hooks.restore]
call = "ours.hooks:join"
path = "hooks"

[health]
address = "[::1]:9000"

[probe]
hosts = ["db.example", "[fd00::1]:8080"]
commands = {reads = ["/usr/local/bin/read-a-row", "--quick"]}
"""


def write(folder: Path, text: str, name: str = "agent.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, text: str, name: str = "agent.toml", **environment: str) -> Config:
    return load(write(folder, text, name), environment)


def faults(folder: Path, text: str, name: str = "agent.toml", **environment: str) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        read(folder, text, name, **environment)
    assert str(caught.value).startswith(f"{folder / name}: ")
    return caught.value.faults


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    key = tmp_path / "key"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    return tmp_path


def test_empty_file_is_an_agent_that_works_alone(folder: Path) -> None:
    expected = Config(Path("/var/lib/tocsin-agent"), NodeSettings(), AgentSettings(""), {}, BASE, API_VERSION, 1, None, ("127.0.0.1", 9478))
    assert read(folder, "") == expected


def test_every_setting_reaches_its_place(folder: Path) -> None:
    config = read(folder, FULL)
    assert config.app is not None and (config.app.url, config.app.fleet, config.app.key) == ("https://app.example", "search", KEY)
    assert (config.state, config.imds, config.api_version, config.poll) == (Path("/srv/agent"), "http://127.0.0.1:8080", "2019-08-01", 0.5)
    assert (config.node.name, config.node.scope, config.node.location, config.node.fault_domain) == ("n1", "avset-1", "westeurope", "2")
    assert config.health == ("::1", 9000)
    assert config.probe == ProbeConsent(frozenset({"db.example", "[fd00::1]:8080"}), {"reads": ("/usr/local/bin/read-a-row", "--quick")})
    assert config.hooks == {
        "prepare": Hook(("/usr/local/bin/leave", "--now"), deadline=20, environment={"MODE": "fast"}),
        "restore": Hook(call="ours.hooks:join", path=str(folder / "hooks")),
    }
    assert config.settings == AgentSettings(
        "vm_1",
        rules=(ActionRule("approve", "Freeze", "Platform", 0), ActionRule("hold", resources=frozenset({"vm_1", "vm_2"}))),
        freeze_limit=5,
        lead=45,
        leads={"Preempt": 0, "Reboot": 90.5},
        hooks={"prepare": 20, "restore": 60},
        central=True,
        fleet="search",
        require_central=True,
        patience=3,
        approve_failed=True,
        after_reboot="prepare",
        idempotent=False,
        near=600,
        prepare_tries=5,
        post_tries=7,
        stale=30,
    )


def test_yaml_says_the_same_as_toml(folder: Path) -> None:
    import tomllib

    import yaml

    text = yaml.safe_dump(tomllib.loads(FULL))
    assert read(folder, text, "agent.yaml") == read(folder, FULL) == read(folder, text, "agent.yml")


def test_all_faults_are_reported_together(folder: Path) -> None:
    text = """
state = "relative"
polls = 1
[imds]
poll_seconds = "often"
[maintenance]
leed_seconds = 30
after_reboot = "perhaps"
lead_seconds_by_type = {Freze = 1}
[[rules]]
action = "aprove"
[[rules]]
type = "Reboot"
"""
    found = faults(folder, text)
    assert [fault.partition(":")[0] for fault in found] == [
        "state",
        "imds.poll_seconds",
        "maintenance.lead_seconds_by_type.Freze",
        "rules[0].action",
        "rules[1].action",
        "maintenance.after_reboot",
        "maintenance.leed_seconds",
        "polls",
    ]
    assert_text("agent.settings-not-valid", found, state="relative", seconds="often", action="aprove", after="perhaps")


WRONG = [
    ("imds = 3", "imds: 3 "),
    ("rules = {}", "rules: {} "),
    ("rules = [1]", "rules: [1] "),
    ("[imds]\npoll_seconds = nan", "imds.poll_seconds: nan "),
    ("[imds]\npoll_seconds = true", "imds.poll_seconds: True "),
    ("[imds]\nurl = 'http://u:pa55word@x'", "imds.url:"),
    ("[imds]\napi_version = '2099-01-01'", "imds.api_version: '2099-01-01' "),
    ("[node]\nname = 'a b'", "node.name: 'a b' "),
    ("[node]\nname = ''", "node.name: '' "),
    ("[node]\nname = 7", "node.name: 7 "),
    ("[maintenance]\nlead_seconds = -1", "maintenance.lead_seconds: -1 "),
    ("[maintenance]\nprepare_tries = 1.5", "maintenance.prepare_tries: 1.5 "),
    ("[maintenance]\napprove_failed = 'yes'", "maintenance.approve_failed: 'yes' "),
    ("[[rules]]\naction='hold'\nearly=true", "rules[0].early:"),
    ("[[rules]]\naction='prepare'\nearly=1", "rules[0].early: 1 "),
    ("[[rules]]\naction='hold'\nresources='vm_1'", "rules[0].resources: 'vm_1' "),
    ("[[rules]]\naction='hold'\nsource='Robot'", "rules[0].source: 'Robot' "),
    ("[hooks.prepare]\ncommand='leave'\n[hooks.restore]\ncall='a:b'", "hooks.prepare.command: 'leave' "),
    ("[hooks.restore]\ncall='a:b'\ncommand=['x']", "hooks.restore.command:"),
    ("[hooks.restore]\ncall='a.b'", "hooks.restore.call:"),
    ("[hooks.restore]\ncall='a:b'\nenvironment={N=1}", "hooks.restore.environment: {'N': 1} "),
    ("[hooks.prepare]\ncall='a:b'", "hooks.restore:"),
    ("[hooks.recover]\ncall='a:b'", "hooks.recover:"),
    ("[recipe]\nname='casandra'", "recipe.name: 'casandra' "),
    ("[recipe]", "recipe.name:"),
    ("[recipe]\nname='systemd'", "recipe.units:"),
    ("[recipe]\nname='cassandra'\nfinish='stop'", "recipe.finish: 'stop' "),
    ("[health]\naddress='9478'", "health.address: '9478' "),
    ("[health]\naddress='localhost:99999'", "health.address: 'localhost:99999' "),
]


@pytest.mark.parametrize(("text", "place"), WRONG)
def test_wrong_value_is_reported_with_its_place(folder: Path, text: str, place: str) -> None:
    [found] = faults(folder, text)
    assert found.startswith(place) and "pa55word" not in found


def test_report_of_a_wrong_value_says_what_to_write(folder: Path) -> None:
    assert_text("agent.wrong-values", [fault for text, _ in WRONG for fault in faults(folder, text)])


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("agent.toml", "[imds\n", "not TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"),
        ("agent.toml", "state = '/a'\nstate = '/b'\n", "not TOML: Cannot overwrite a value (at line 2, column 13)"),
        ("agent.yaml", "imds:\n  url: [\n", "line 3, column 1: not YAML: "),
        ("agent.yaml", "imds: {}\nnode: {}\nimds: {}\n", "line 3, column 1: not YAML: duplicate key imds"),
        ("agent.yaml", "- imds\n", "expected a table of settings, with lines like `imds:`"),
        ("agent.yaml", "a: !!python/object/apply:os.system ['true']", "line 1, column 4: not YAML: could not determine a constructor"),
        ("agent.yaml", "a: \x00", "not YAML: "),
        ("agent.yaml", "a: 2026-02-31", "not YAML: day "),
        ("agent.yaml", "a: " + "9" * 5000, "not YAML: a number has too many digits"),
        ("agent.yaml", "a: " + "[" * 5000, "not YAML: nested too deep"),
        ("agent.toml", "a = " + "9" * 5000, "not TOML: a number has too many digits"),
        ("agent.toml", "a = " + "[" * 5000, "not TOML: nested too deep"),
        ("agent.toml", "# " + "x" * 1024 * 1024, "larger than 1 MiB"),
    ],
)
def test_text_that_is_no_table_is_refused_with_line_and_column(folder: Path, name: str, text: str, fault: str) -> None:
    before = sys.getrecursionlimit()
    # Libraries of other tests raise Python's limit, and may leave it so.
    sys.setrecursionlimit(1_000)
    try:
        [found] = faults(folder, text, name)
    finally:
        sys.setrecursionlimit(before)
    assert found.startswith(fault)


def test_rule_early_is_for_a_node_without_an_app(folder: Path) -> None:
    rule = "[[rules]]\ntype = 'Redeploy'\naction = 'prepare'\nearly = true\n"
    assert read(folder, rule).settings.rules == (ActionRule("prepare", "Redeploy", early=True),)
    [found] = faults(folder, rule + "[app]\nurl = 'https://app.example'\nfleet = 'db'\nkey_file = 'key'\n")
    assert_text("agent.rule-early", found, place="rules[0].early")


def test_empty_yaml_is_an_empty_table(folder: Path) -> None:
    assert read(folder, "# nothing\n", "agent.yaml") == read(folder, "")


def test_file_that_is_not_there_or_no_text_is_refused(folder: Path) -> None:
    with pytest.raises(BadConfig, match=r"none\.toml: .*: No such file or directory"):
        load(folder / "none.toml")
    (folder / "bytes.toml").write_bytes(b"a = \xff")
    with pytest.raises(BadConfig, match="byte 4: not UTF-8"):
        load(folder / "bytes.toml")


APP = '[app]\nurl = "https://app.example"\nfleet = "search"\n'


def test_key_comes_from_the_environment_where_no_file_is_named(folder: Path) -> None:
    config = read(folder, APP, TOCSIN_KEY=KEY)
    assert config.app is not None and config.app.key == KEY and KEY not in repr(config)


@pytest.mark.parametrize(
    ("text", "environment", "key"),
    [
        (APP, {}, "agent.app-without-key"),
        (APP, {"TOCSIN_KEY": "a secret"}, "agent.app-with-a-wrong-key"),
        (APP + 'key = "in-the-clear-key"\n', {"TOCSIN_KEY": KEY}, "agent.app-key-in-the-file"),
        (APP + 'key_file = "gone"\n', {}, "agent.app-without-key-file"),
        (APP + 'key_file = "open"\n', {}, "agent.app-key-file-open"),
        (APP.replace("https", "http"), {"TOCSIN_KEY": KEY}, "agent.app-without-encryption"),
        (
            APP.replace("search", "Search!"),
            {"TOCSIN_KEY": KEY},
            "agent.app-fleet",
        ),
        ('[app]\nfleet="search"', {"TOCSIN_KEY": KEY}, "agent.app-without-url"),
        ('[app]\nurl="https://app.example"', {"TOCSIN_KEY": KEY}, "agent.app-fleet"),
    ],
)
def test_app_without_what_it_needs_is_refused_and_no_key_is_shown(folder: Path, text: str, environment: dict[str, str], key: str) -> None:
    (folder / "open").write_text("another-secret-key")
    (folder / "open").chmod(0o644)
    [found] = faults(folder, text, **environment)
    assert_text(key, found.replace(str(folder), "/folder"))
    assert not any(secret in found for secret in ("a secret", "in-the-clear-key", "another-secret-key", KEY))


@pytest.mark.parametrize("host", ["localhost:7071", "127.0.0.1:7071", "[::1]:7071"])
def test_app_on_this_machine_may_be_asked_in_the_clear(folder: Path, host: str) -> None:
    config = read(folder, APP.replace("https://app.example", f"http://{host}"), TOCSIN_KEY=KEY)
    assert config.app is not None and config.app.url == f"http://{host}"


TUNNEL = HttpProxy("proxy.example", 3128)
PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environment", "proxy"),
    [
        ({}, None),
        ({"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY}, TUNNEL),
        ({"https_proxy": "proxy.example:3128/"}, TUNNEL),
        ({"HTTPS_PROXY": "http://another:1", "https_proxy": PROXY}, TUNNEL),
        ({"HTTPS_PROXY": PROXY, "https_proxy": ""}, None),
        ({"HTTPS_PROXY": "http://proxy.example"}, HttpProxy("proxy.example", 80)),
        ({"HTTPS_PROXY": "http://us%65r:p%40ss@[fd00::1]:3128"}, HttpProxy("fd00::1", 3128, "Basic dXNlcjpwQHNz")),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "db.example, .other"}, TUNNEL),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "other, .example"}, None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "p.example,,app.example.org, app.example:8443"}, TUNNEL),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "APP.Example"}, None),
    ],
)
def test_the_app_is_reached_through_the_proxy_of_the_environment(
    folder: Path, environment: dict[str, str], proxy: HttpProxy | None
) -> None:
    config = read(folder, APP, TOCSIN_KEY=KEY, **environment)
    assert config.app is not None and config.app.proxy == proxy
    assert "Basic" not in repr(config)


def test_an_app_on_this_machine_has_no_proxy(folder: Path) -> None:
    config = read(folder, APP.replace("https://app.example", "http://localhost:7071"), TOCSIN_KEY=KEY, HTTPS_PROXY=PROXY)
    assert config.app is not None and config.app.proxy is None


@pytest.mark.parametrize("value", ["https://p:secret@proxy", "socks5://proxy", "http://proxy:99999", "http://", "http://p/path", "[::1"])
def test_a_proxy_that_the_agent_cannot_use_is_refused_without_its_password(folder: Path, value: str) -> None:
    [found] = faults(folder, APP, TOCSIN_KEY=KEY, HTTPS_PROXY=value)
    assert_text("agent.app-proxy", found)


def options(hook: Hook) -> Any:
    return json.loads(hook.environment["TOCSIN_RECIPE"])


def test_recipe_brings_its_hooks_and_own_ones_stand_in_for_them(folder: Path) -> None:
    text = '[recipe]\nname = "cassandra"\ndeadline_seconds = 25\narguments = ["-p", "7199"]\nfinish = "drain"\n'
    hooks = read(folder, text + '[hooks.verify]\ncommand = ["true"]\n').hooks
    assert set(hooks) == {"prepare", "emergency", "restore", "verify"}
    assert hooks["verify"] == Hook(("true",))
    assert hooks["prepare"].call == "shared.maintenance.agent.hooks.recipes.cassandra:prepare" and hooks["prepare"].deadline == 25
    told = {"nodetool": "nodetool", "arguments": ["-p", "7199"], "finish": "drain", "service": "cassandra", "thrift": False}
    assert options(hooks["restore"]) == told


def test_systemd_recipe_has_no_emergency(folder: Path) -> None:
    hooks = read(folder, '[recipe]\nname = "systemd"\nunits = ["a.service", "b.service"]\n').hooks
    assert set(hooks) == {"prepare", "restore", "verify"} and options(hooks["prepare"])["units"] == ["a.service", "b.service"]


def test_health_can_be_switched_off(folder: Path) -> None:
    assert read(folder, "[health]\nenabled = false\n").health is None
