"""`make sbom`: files that are valid, name everything that is shipped, and say which component requires which."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component

from devhost.dependencies import sbom
from devhost.dependencies.locks import pins_of
from tests.paths import ROOT


def read(bom: Bom) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """The components by name, and the names of what each one requires."""
    found = json.loads(sbom.written(bom))
    names = {each["bom-ref"]: each["name"] for each in [*found["components"], found["metadata"]["component"]]}
    requires = {names[each["ref"]]: {names[ref] for ref in each.get("dependsOn", ())} for each in found["dependencies"]}
    return {each["name"]: each for each in found["components"]}, requires


def test_the_app_is_what_its_lock_pins_and_the_charts() -> None:
    components, requires = read(sbom.of_the_app())
    pins = pins_of((ROOT / "requirements.txt").read_text())
    assert components.keys() == pins.keys() | {"uplot"}
    for name, pin in pins.items():
        assert components[name]["purl"] == f"pkg:pypi/{name}@{pin.version}" and components[name]["licenses"]
        [files] = components[name]["externalReferences"]
        assert {f"sha256:{each['content']}" for each in files["hashes"]} == set(pin.hashes)
    assert {"aiohttp", "pydantic", "uplot"} <= requires["tocsin"] and "multidict" not in requires["tocsin"]
    assert {"multidict", "yarl"} <= requires["aiohttp"]
    assert "cryptography" in requires["pyjwt"], "what an extra brings, which another package asks for"


def test_the_agent_is_what_nodes_get() -> None:
    components, requires = read(sbom.of_the_agent())
    # The only package that is for Windows alone.
    assert components.keys() == pins_of((ROOT / "requirements-agent.txt").read_text()).keys() - {"colorama"}
    assert "httpx" in requires["tocsin"] and "httpcore" in requires["httpx"]


@pytest.mark.parametrize("of", [sbom.of_the_app, sbom.of_the_agent])
def test_every_component_is_reached_from_the_root(of: Any) -> None:
    components, requires = read(of())
    reached, waiting = set(), ["tocsin"]
    while waiting:
        name = waiting.pop()
        waiting += requires[name] - reached
        reached.add(name)
    assert reached - {"tocsin"} == components.keys()


def test_a_file_that_breaks_the_schema_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, bom: Bom) -> None:
            pass

        def output_as_string(self, indent: int) -> str:
            return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "no type"}]})

    monkeypatch.setattr(sbom, "JsonV1Dot6", Broken)
    with pytest.raises(ValueError, match="not valid CycloneDX"):
        sbom.written(Bom(components=[Component(name="a")]))


def test_the_files_are_written_where_git_does_not_look() -> None:
    assert sbom.OUT.relative_to(ROOT).parts[0] == "build" and "build/" in (ROOT / ".gitignore").read_text().splitlines()
    assert sbom.main() == 0
    assert {json.loads((sbom.OUT / f"{name}.cdx.json").read_text())["specVersion"] for name in ("app", "agent")} == {"1.6"}
