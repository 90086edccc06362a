"""`bench cold`: the package that it starts processes from, and its figures."""

from __future__ import annotations

from importlib.util import cache_from_source
from pathlib import Path

import pytest

from bench.cold import stages
from bench.cold.command import as_dict, parse
from bench.cold.stages import Used


def test_package_has_what_is_deployed_compiled_without_looks_at_the_sources(tmp_path: Path) -> None:
    stages.build_package(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"__pycache__", "function_app.py", "host.json", "requirements.txt", "shared"}
    compiled = Path(cache_from_source(str(tmp_path / "shared" / "app" / "application.py"))).read_bytes()
    # PEP 552: 1 says that the bytecode is valid by a hash, and that nobody compares it.
    assert int.from_bytes(compiled[4:8], "little") == 1


def test_a_stage_has_what_was_added_since_the_one_before() -> None:
    floor = Used(0.4, 700, 40.0, {"pydantic": (40, 0.1), "json": (5, 0.0)})
    until = Used(0.6, 900, 52.0, {"pydantic": (42, 0.11), "json": (5, 0.0), "shared.core": (20, 0.05)})
    added = until - floor
    assert (round(added.cpu, 6), added.modules, added.mb) == (0.2, 200, 12.0)
    assert {name: modules for name, (modules, _) in added.packages.items()} == {"pydantic": 2, "shared.core": 20}
    document = as_dict(added)
    assert list(document["packages"]) == ["shared.core", "pydantic"]
    assert document["cpu_seconds"] == 0.2


def test_no_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--rounds", "0"])
    assert "--rounds must be 1 or more" in capsys.readouterr().err
