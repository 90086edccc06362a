"""The container of `tocsin dev`: what Dockerfile and compose.yaml name exists, and they agree. No container is built here."""

from __future__ import annotations

import inspect
import json
import os
import re
from fnmatch import fnmatch

import yaml

from shared.cli import dev
from shared.local.service import LocalOptions
from tests.paths import ROOT
from tests.waiting import run

LINES = (ROOT / "Dockerfile").read_text().splitlines()
SERVICE = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["tocsin"]
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]


def instructions(name: str) -> list[str]:
    """The arguments of the instructions of that name."""
    joined = "\n".join(LINES).replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def test_the_dockerfile_is_short() -> None:
    assert len(LINES) <= 25


def test_the_command_of_the_container_has_these_options() -> None:
    [entry] = map(json.loads, instructions("ENTRYPOINT"))
    parameters = inspect.signature(dev.dev).parameters
    assert entry[:2] == ["tocsin", "dev"]
    assert {option.removeprefix("--") for option in entry[2::2]} == {"host", "data"} <= set(parameters)
    assert entry[entry.index("--data") + 1] in instructions("VOLUME")[0].split()


def test_what_builds_the_wheel_can_run_and_is_not_left_out_of_the_context() -> None:
    [builds, *_] = instructions("RUN")
    assert os.access(ROOT / builds, os.X_OK)
    needed = {builds, "pyproject.toml", "requirements-build.txt", "README.md", "LICENSE", "shared/core/version.py"}
    needed |= set(re.findall(r'^"([^"]+)" = "tocsin/', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    needed |= set(re.findall(r'^path = "([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for path in needed:
        assert (ROOT / path).exists(), path
        assert not [pattern for pattern in IGNORED if fnmatch(path, pattern) or path.startswith(f"{pattern}/")], path


def test_keys_and_data_of_this_machine_do_not_get_into_the_image() -> None:
    assert {".env", "local.settings.json", ".azurite", ".git"} <= set(IGNORED)
    assert run(["git", "check-ignore", ".env"], cwd=ROOT).stdout.strip() == ".env"


def test_compose_gives_the_container_its_keys_port_and_volume() -> None:
    given = SERVICE["environment"]
    assert set(dev.KEY_VARIABLES) | {dev.EGRESS} == set(given)
    for name in dev.KEY_VARIABLES:
        # Without it, compose refuses to start.
        assert given[name].startswith(f"${{{name}:?")
    port = str(LocalOptions().port)
    assert instructions("EXPOSE") == [port] and SERVICE["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert [volume.partition(":")[2] for volume in SERVICE["volumes"]] == instructions("VOLUME")


def test_the_health_check_asks_a_route_of_the_service() -> None:
    [check] = instructions("HEALTHCHECK")
    program = json.loads(check.removeprefix("CMD "))[2]
    compile(program, "health check", "exec")
    [path] = re.findall(rf"http://localhost:{LocalOptions().port}/api/(\w+)", program)
    from shared.extras.route_index import INDEX

    assert path in {route.template for route in INDEX}
