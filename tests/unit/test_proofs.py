"""Proofs: certificates are stale when what they depend on changes, and only then; a proof's process records what it depends on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.proofs import __main__ as command
from tests.proofs.catalogue import CatalogueError, Proof, find_proofs, named, parts_of
from tests.proofs.certificate import FORMAT, PYTHON, CertificateError, Content, differences, from_text, pins, stale_because, to_text
from tests.proofs.proving import Outcome, Processes, choose, compare, orphans, prove_all, write
from tests.proofs.trees import TreeHashes, hash_of, tree_hash

RULE = b'''"""A module."""


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number
'''


@pytest.mark.parametrize(
    "same",
    [
        RULE.replace(b"A module.", b"The rules."),
        RULE.replace(b"Return twice", b"Return the double of"),
        RULE.replace(b'    """Return twice the number."""\n', b""),
        RULE.replace(b"    return 2", b"    # Twice.\n    return 2"),
        RULE.replace(b"2 * number", b"(2\n        * number)"),
        RULE + b"\n\n",
    ],
    ids=["module's docstring", "docstring", "no docstring", "comment", "layout", "blank lines"],
)
def test_hash_of_a_module_does_not_depend_on_words_and_layout(same: bytes) -> None:
    assert tree_hash(same) == tree_hash(RULE)


@pytest.mark.parametrize("other", [RULE.replace(b"2 *", b"3 *"), RULE.replace(b"number: int", b"number: float"), RULE + b"LIMIT = 1\n"])
def test_hash_of_a_module_depends_on_its_code(other: bytes) -> None:
    assert tree_hash(other) != tree_hash(RULE)


def test_text_that_is_a_value_is_code() -> None:
    assert tree_hash(b"A = 'x'") != tree_hash(b"A = 'y'")
    assert tree_hash(b"def f():\n    return 'x'") != tree_hash(b"def f():\n    return 'y'")


def test_cached_hash_is_that_of_the_file(tmp_path: Path) -> None:
    module, cache = tmp_path / "a.py", tmp_path / "build" / "trees.json"
    for source in (RULE, RULE.replace(b"2 *", b"3 *"), RULE):
        module.write_bytes(source)
        trees = TreeHashes(cache)
        assert trees.of(module) == tree_hash(source)
        trees.save()
    cache.write_text("{")
    assert TreeHashes(cache).of(module) == tree_hash(RULE)


# -- the catalogue


def test_proofs_are_found_by_the_names_of_their_files_and_split_into_parts(tmp_path: Path) -> None:
    for path, text in {"model/prove_plays.py": "PARTS = 2\n", "prove_days.py": "", "model/test_plays.py": ""}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    found = find_proofs(tmp_path)
    assert [(each.name, each.part, each.parts) for each in found] == [("model/plays-1", 1, 2), ("model/plays-2", 2, 2), ("days", 1, 1)]
    for name, proofs in {"model": found[:2], "model/plays": found[:2], "model/plays-2": found[1:2], "days": found[2:]}.items():
        assert named(found, name) == proofs
    with pytest.raises(CatalogueError, match="'model/play'"):
        named(found, "model/play")


@pytest.mark.parametrize("parts", ["0", "-1", "True", "1 + 1", "'2'"])
def test_parts_that_are_no_number_are_refused(tmp_path: Path, parts: str) -> None:
    file = tmp_path / "prove_a.py"
    file.write_text(f"\nPARTS = {parts}\n")
    with pytest.raises(CatalogueError, match=r"prove_a\.py:2: "):
        parts_of(file)


def test_every_proof_of_the_repository_has_a_name_of_its_own() -> None:
    found = find_proofs()
    assert len(found) > 20 and len({each.name for each in found}) == len(found)


# -- certificates


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one module, one data file and one pinned package."""
    (tmp_path / "rules.py").write_bytes(RULE)
    (tmp_path / "rows.json").write_text("[1]")
    (tmp_path / "requirements.txt").write_text("orjson==3.13.0 \\\n    --hash=sha256:00\n")
    (tmp_path / "requirements-dev.txt").write_text("pytest_asyncio==1.0 ; python_version > '3'\n")
    pins.cache_clear()
    return tmp_path


@pytest.fixture
def proof(root: Path) -> Proof:
    return Proof("model/plays", root / "prove_plays.py")


@pytest.fixture
def content(root: Path) -> Content:
    return {
        "cases": {"test_it[a]": {"verdict": "holds", "states": 12}, "test_it[b]": {"verdict": "caught", "by": "P1"}},
        "files": {"rows.json": hash_of(b"[1]")},
        "format": FORMAT,
        "modules": {"rules.py": tree_hash(RULE)},
        "parts": 1,
        "pins": {"orjson": "3.13.0", "pytest-asyncio": "1.0"},
        "proof": "model/plays",
        "python": PYTHON,
    }


def reason(root: Path, proof: Proof) -> str | None:
    pins.cache_clear()
    return stale_because(proof, TreeHashes(None), root / "proved", root)


def test_certificate_is_current_while_nothing_changes_but_words(root: Path, proof: Proof, content: Content) -> None:
    assert reason(root, proof) == "has no certificate"
    write(content, proof, root / "proved")
    assert reason(root, proof) is None
    (root / "rules.py").write_bytes(RULE.replace(b"Return twice", b"Return the double of"))
    assert reason(root, proof) is None


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("rules.py", RULE.decode().replace("2 *", "3 *"), "rules.py has changed"),
        ("rules.py", None, "rules.py is gone"),
        ("rows.json", "[2]", "rows.json has changed"),
        ("rows.json", None, "rows.json has changed"),
        ("requirements.txt", "orjson==3.13.1\n", "orjson is pinned to 3.13.1, and was 3.13.0"),
        ("requirements-dev.txt", "", "pytest-asyncio is pinned to None, and was 1.0"),
    ],
)
def test_certificate_is_stale_when_what_it_depends_on_changes(
    root: Path, proof: Proof, content: Content, file: str, text: str | None, named: str
) -> None:
    write(content, proof, root / "proved")
    (root / file).unlink() if text is None else (root / file).write_text(text)
    assert reason(root, proof) == named


def test_number_of_further_changes_is_said(root: Path, proof: Proof, content: Content) -> None:
    write(content, proof, root / "proved")
    (root / "rules.py").unlink()
    (root / "rows.json").unlink()
    assert reason(root, proof) == "rules.py is gone, and 1 more"


@pytest.mark.parametrize(("member", "value"), [("format", FORMAT + 1), ("python", "cpython-3.99"), ("parts", 2), ("proof", "model/other")])
def test_certificate_of_another_form_python_or_part_is_stale(root: Path, proof: Proof, content: Content, member: str, value: Any) -> None:
    write(content | {member: value}, proof, root / "proved")
    assert "is about another" in (reason(root, proof) or "")


@pytest.mark.parametrize(
    ("old", "new"),
    [('"states": 12', '"states": 13'), ("P1", "P2"), ('"holds"', '"caught"'), (",\n", ",\n\n"), ('"parts": 1', '"parts":  1')],
)
def test_certificate_that_was_changed_by_hand_is_found(root: Path, proof: Proof, content: Content, old: str, new: str) -> None:
    write(content, proof, root / "proved")
    file = root / "proved" / "model" / "plays.json"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    assert reason(root, proof) == "its certificate was changed by hand"


@pytest.mark.parametrize("text", ["", "[]", "{}", "<<<<<<< HEAD\n{}", '"a"'])
def test_text_that_no_proof_wrote_is_no_certificate(text: str) -> None:
    with pytest.raises(CertificateError):
        from_text(text)


def test_certificate_is_read_as_it_was_written_and_has_a_line_for_each_case(content: Content) -> None:
    text = to_text(content)
    assert from_text(text) == content and json.loads(text)["cases"] == content["cases"]
    assert ' "test_it[a]": {"states": 12, "verdict": "holds"},\n' in text


def test_differences_name_the_case_and_both_values(content: Content) -> None:
    now = json.loads(json.dumps(content))
    assert differences(content, now) == []
    now["cases"]["test_it[a]"]["states"] = 13
    now["parts"] = 2
    first, second = differences(content, now)
    assert "test_it[a]" in first and "12" in first and "13" in first and second == "parts: 1 in the certificate, 2 now"


def test_proof_that_fails_or_finds_other_numbers_differs_from_its_certificate(root: Path, proof: Proof, content: Content) -> None:
    write(content, proof, root / "proved")
    assert compare(Outcome(proof, content, "", 0.0), root / "proved") == []
    assert compare(Outcome(proof, content | {"cases": {}}, "", 0.0), root / "proved")
    assert compare(Outcome(proof, None, "", 0.0), root / "proved")


def test_certificates_without_a_proof_are_found(root: Path, proof: Proof, content: Content) -> None:
    write(content, proof, root / "proved")
    write(content, proof._replace(name="model/gone"), root / "proved")
    assert list(orphans([proof], root / "proved")) == [root / "proved" / "model" / "gone.json"]


def test_commit_chooses_other_proofs_and_always_the_same(proof: Proof) -> None:
    proofs = [proof._replace(name=f"p{number}") for number in range(20)]
    chosen = [tuple(choose(proofs, 2, f"commit {number}")) for number in range(20)]
    assert chosen == [tuple(choose(reversed(proofs), 2, f"commit {number}")) for number in range(20)]
    assert len(set(chosen)) > 10 and all(len(set(each)) == 2 for each in chosen)


# -- the process of a proof

PROGRAM = """
import sys
from pathlib import Path
from tests.proofs.catalogue import Proof
from tests.proofs.certificate import to_text
from tests.proofs.running import prove
root = Path(sys.argv[1])
content, reason = prove(Proof("a", root / "prove_a.py", int(sys.argv[2]), int(sys.argv[3])), root)
print("REASON", reason)
if content is not None:
    (root / "content.json").write_text(to_text(content))
"""
CASES = """
from pathlib import Path
import helper
import pytest
from tests.proofs.facts import note

def test_first():
    assert Path(__file__).with_name("data.txt").read_text() == "data"
    note(states=helper.double(21))

@pytest.mark.parametrize("name", ["x", "y"])
def test_second(name):
    Path(__file__).with_name("written.txt").write_text(name)
    note(verdict="caught", by=name)
"""


def run_proof(root: Path, cases: str, part: int = 1, parts: int = 1, *, age: float = 60.0) -> tuple[Content | None, str]:
    """Prove the cases in a process, in a repository whose files are `age` seconds old."""
    for name, text in {"prove_a.py": cases, "helper.py": RULE.decode(), "data.txt": "data", "pyproject.toml": ""}.items():
        (root / name).write_text(text)
        then = (root / name).stat().st_mtime - age
        os.utime(root / name, (then, then))
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", PROGRAM, str(root), str(part), str(parts)]
    done = subprocess.run(arguments, cwd=root, env=environment, capture_output=True, text=True, check=True)
    file = root / "content.json"
    return (from_text(file.read_text()) if file.exists() else None), done.stdout.partition("REASON ")[2].strip()


def test_process_records_cases_modules_files_that_it_read_and_pins(tmp_path: Path) -> None:
    content, why = run_proof(tmp_path, CASES)
    assert content is not None, why
    assert content["cases"] == {
        "test_first": {"verdict": "holds", "states": 42},
        "test_second[x]": {"verdict": "caught", "by": "x"},
        "test_second[y]": {"verdict": "caught", "by": "y"},
    }
    assert content["modules"] == {"helper.py": tree_hash(RULE), "prove_a.py": tree_hash(CASES.encode())}
    assert content["files"] == {"data.txt": hash_of(b"data")}
    assert "pytest" in content["pins"] and "mypy" not in content["pins"]


def test_parts_have_every_case_once(tmp_path: Path) -> None:
    found: list[str] = []
    for part in (1, 2):
        content, why = run_proof(tmp_path, CASES, part, 2)
        assert content is not None, why
        found += content["cases"]
    assert sorted(found) == ["test_first", "test_second[x]", "test_second[y]"]


@pytest.mark.parametrize(
    ("statement", "named"),
    [("assert False", "test_it: failed"), ("import pytest; pytest.skip('no time')", "test_it: skipped"), ("1 / 0", "test_it: failed")],
)
def test_case_that_does_not_pass_leaves_no_certificate(tmp_path: Path, statement: str, named: str) -> None:
    assert run_proof(tmp_path, f"def test_it():\n    {statement}\n") == (None, named)


def test_part_without_a_case_leaves_no_certificate(tmp_path: Path) -> None:
    content, why = run_proof(tmp_path, "def test_it():\n    pass\n", 2, 2)
    assert content is None and why


def test_code_that_changes_while_it_is_proved_leaves_no_certificate(tmp_path: Path) -> None:
    content, why = run_proof(tmp_path, CASES, age=-60.0)
    assert content is None and why.endswith("was changed while it was proved")


# -- the command


def test_check_prints_one_line_for_each_stale_proof(root: Path, proof: Proof, capsys: pytest.CaptureFixture[str]) -> None:
    assert command._check({}, []) == 0
    assert capsys.readouterr().out == ""
    assert command._check({proof: "rules.py has changed"}, [ROOT / "tests" / "proved" / "gone.json"]) == command.FAILED
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        "stale proof model/plays: rules.py has changed",
        "stale certificate tests/proved/gone.json: there is no such proof",
    ]
    assert "make prove" in said.err


@pytest.mark.parametrize("arguments", [["--again", "0"], ["--jobs", "x"], ["--check", "--list"], ["--only", "no/such"]])
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = command.main(arguments)
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    assert status == 2 and capsys.readouterr().err


def test_proof_does_not_start_once_the_others_were_ended(proof: Proof) -> None:
    processes = Processes()
    processes.end()
    with pytest.raises(InterruptedError):
        processes.run(proof)


def test_comparison_without_enough_current_certificates_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--again", "1000"]) == command.FAILED
    assert "1000 were to be compared" in capsys.readouterr().err


def test_failure_of_one_proof_does_not_stop_the_others(proof: Proof) -> None:
    ended: list[Outcome] = []
    prove_all([proof._replace(name="no/such"), proof._replace(name="none/either")], 2, ended.append)
    assert sorted(each.proof.name for each in ended) == ["no/such", "none/either"]
    assert all(each.content is None and "no proof is called" in each.output for each in ended)
