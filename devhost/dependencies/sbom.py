"""Writes software bills of materials (CycloneDX 1.6, JSON) of what is deployed and of what nodes get: `make sbom`.

    build/sbom/app.cdx.json      the functions app: requirements.txt, and the charts of the dashboard
    build/sbom/agent.cdx.json    the wheel on a node: requirements-agent.txt

Both are for Linux. Licences, descriptions and dependencies come from the metadata of the installed distributions, which are those that are
pinned. Every file is validated against the schema before it is written.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from shared.core.version import version

from .locks import LINUX, Environment, chosen, chosen_on_nodes, pins_of, requires

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "sbom"
CHARTS = ("uPlot.iife.min.js", "uPlot.min.css")


def main() -> int:
    """Write both files; print what they hold."""
    OUT.mkdir(parents=True, exist_ok=True)
    for name, bom in {"app": of_the_app(), "agent": of_the_agent()}.items():
        text = written(bom)
        path = OUT / f"{name}.cdx.json"
        path.write_text(text + "\n")
        print(f"sbom: {path.relative_to(ROOT)}: {len(bom.components)} components")
    return 0


def of_the_app() -> Bom:
    """Return what `requirements.txt` installs in Azure, and what the dashboard ships."""
    bom = _bom(ComponentType.APPLICATION, ROOT / "requirements.txt", chosen(ROOT / "requirements.in"), "3.13")
    assert bom.metadata.component is not None
    charts = _charts()
    bom.components.add(charts)
    known = next(each for each in bom.dependencies if each.ref == bom.metadata.component.bom_ref)
    direct = {each.ref for each in known.dependencies}
    bom.register_dependency(bom.metadata.component, [charts, *(each for each in bom.components if each.bom_ref in direct)])
    return bom


def of_the_agent() -> Bom:
    """Return what the installer puts on a node, with the Python of Ubuntu 24.04."""
    return _bom(ComponentType.LIBRARY, ROOT / "requirements-agent.txt", chosen_on_nodes(ROOT / "pyproject.toml"), "3.12")


def written(bom: Bom) -> str:
    """Return the file's text. Raises ValueError if it is not valid by the schema."""
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    # The syntax of identifiers that this module builds takes seconds.
    from cyclonedx.validation.json import JsonStrictValidator

    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"not valid CycloneDX: {fault}")
    return text


def _bom(kind: ComponentType, lock: Path, wanted: list[Requirement], python: str) -> Bom:
    """Return the wanted packages and all that they require, with the dependencies between them."""
    environment = Environment(python, LINUX)
    pins = {name: pin for name, pin in pins_of(lock.read_text()).items() if environment.takes(pin.requirement.marker)}
    components = {name: _library(name, pin.version, pin.hashes) for name, pin in pins.items()}
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    root = Component(name="tocsin", version=version(), type=kind, bom_ref="tocsin", description=about["description"])
    root.licenses.add(DisjunctiveLicense(id="MIT"))
    bom = Bom(components=components.values())
    bom.metadata.component = root
    bom.register_dependency(root, {components[canonicalize_name(each.name)] for each in wanted})
    extras: dict[str, set[str]] = {}
    required = {name: requires(name, pin.version, pin.requirement.marker) for name, pin in pins.items()}
    for each in [*wanted, *(each for found in required.values() for each in found)]:
        extras.setdefault(canonicalize_name(each.name), set()).update(each.extras)
    for name, found in required.items():
        asked = {"", *extras.get(name, ())}
        needed = {canonicalize_name(each.name) for each in found if any(environment.takes(each.marker, extra) for extra in asked)}
        bom.register_dependency(components[name], [components[each] for each in needed & components.keys()])
    return bom


def _library(name: str, version: str, hashes: list[str]) -> Component:
    """Return a package of the Python index; its files are named by their hashes only, as in the lock."""
    purl = PackageURL("pypi", None, name, version)
    found = distribution(name).metadata
    files = [HashType(alg=HashAlgorithm.SHA_256, content=each.removeprefix("sha256:")) for each in hashes]
    component = Component(name=name, version=version, purl=purl, bom_ref=str(purl), type=ComponentType.LIBRARY)
    component.description = found.get("Summary")
    component.external_references.add(ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(str(purl)), hashes=files))
    # The last part of a classifier: "License :: OSI Approved :: MIT License".
    named = [each.rpartition(" :: ")[2] for each in found.get_all("Classifier") or () if each.startswith("License ::")]
    if expression := found.get("License-Expression"):
        component.licenses.add(LicenseExpression(expression))
    else:
        # The field is free text: a name, in what is installed here.
        for each in named or [found.get("License") or "unknown"]:
            component.licenses.add(DisjunctiveLicense(name=each))
    return component


def _charts() -> Component:
    """Return uPlot, whose files are copies in the dashboard's folder."""
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]["node_modules/uplot"]
    purl = PackageURL("npm", None, "uplot", locked["version"])
    component = Component(name="uplot", version=locked["version"], purl=purl, bom_ref=str(purl), type=ComponentType.LIBRARY)
    component.licenses.add(DisjunctiveLicense(id=locked["license"]))
    for name in CHARTS:
        content = (ROOT / "shared/web/dashboard/assets/vendor" / name).read_bytes()
        file = Component(name=name, type=ComponentType.FILE, bom_ref=f"{purl}#{name}")
        file.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest()))
        component.components.add(file)
    return component


if __name__ == "__main__":
    sys.exit(main())
