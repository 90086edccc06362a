"""`make setup` in an empty clone: which Python and which Node it takes.

devhost/setup.sh runs for real, in a folder of its own, on a PATH that holds nothing but the basic tools and stand-ins for
python, node and npm. The stand-ins write their arguments into one log; nothing is installed or fetched.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.making import make_command
from tests.paths import ROOT

from .checkout import GROUPS, NPM_CI, PIP, PIP_DOCS, PIP_NODE, PIP_RUN, SOURCES, Checkout


def test_an_empty_clone_gets_a_venv_its_requirements_and_azurite(checkout: Checkout) -> None:
    code, out, err = checkout.setup()
    assert (code, err) == (0, "")
    assert checkout.done() == [f"venv by {checkout.bin}/python3.13", PIP, NPM_CI]
    assert (checkout.clone / ".venv/bin/node").readlink() == checkout.bin / "node"
    assert len(out.splitlines()) == 4  # one line a step, and the end


def test_a_repeat_does_and_says_nothing(ready: Checkout) -> None:
    (ready.bin / "python3.13").unlink()  # not even the search for Python
    assert ready.setup() == (0, "", "")
    assert ready.done() == []


def test_make_sets_up_an_empty_clone_and_then_says_nothing(checkout: Checkout) -> None:
    shutil.copy(ROOT / "Makefile", checkout.clone)
    make, *arguments = make_command("setup")
    command = [shutil.which(make) or make, *arguments, "--silent"]
    environment = {"PATH": str(checkout.bin), "HOME": str(checkout.home)}
    said = [
        subprocess.run(command, cwd=checkout.clone, env=environment, capture_output=True, text=True, timeout=180, check=True).stdout
        for _ in range(2)
    ]
    assert said[0].endswith("setup: ready\n") and said[1] == ""
    assert checkout.done() == [f"venv by {checkout.bin}/python3.13", PIP, NPM_CI]


def test_a_plan_changes_nothing(checkout: Checkout) -> None:
    before = sorted(checkout.clone.rglob("*"))
    code, out, _ = checkout.setup("--plan")
    assert code == 0
    assert "python: python3.13\n" in out and f"node: {checkout.bin}/node\n" in out
    assert sorted(checkout.clone.rglob("*")) == before
    assert checkout.done() == []


def test_a_target_that_needs_little_installs_little(checkout: Checkout) -> None:
    assert checkout.setup("docs")[0] == 0
    assert checkout.done() == [f"venv by {checkout.bin}/python3.13", PIP_DOCS]
    assert checkout.setup("run")[0] == 0
    assert checkout.done() == [PIP_RUN, NPM_CI]
    for group in ("docs", "run"):
        assert checkout.setup(group) == (0, "", "")
    assert checkout.setup()[0] == 0
    assert checkout.done() == [PIP]


def test_the_full_set_up_has_what_each_target_needs(ready: Checkout) -> None:
    for group in ("run", "docs", "audit"):
        assert ready.setup(group) == (0, "", "")
    assert ready.done() == []


def test_a_changed_lock_of_another_group_changes_nothing(checkout: Checkout) -> None:
    checkout.setup("run")
    checkout.done()
    (checkout.clone / "requirements-docs.txt").write_text("second version\n")
    assert checkout.setup("run") == (0, "", "")
    (checkout.clone / "requirements-run.txt").write_text("second version\n")
    assert checkout.setup("run")[0] == 0
    assert checkout.done() == [PIP_RUN]


def test_an_unknown_group_is_refused(checkout: Checkout) -> None:
    code, _, err = checkout.setup("everything")
    assert code == 2 and "run, docs, audit or dev" in err and checkout.done() == []


# --- which Python ---------------------------------------------------------------------------------------------------


def test_a_shim_that_does_not_run_gives_way_to_pyenvs_own_version(checkout: Checkout) -> None:
    checkout.put(checkout.bin / "python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    checkout.python("python3", "3.11.7")
    inside = checkout.python(checkout.home / ".pyenv/versions/3.13.0/bin/python3.13", "3.13.0")
    assert checkout.setup()[0] == 0
    assert checkout.done()[0] == f"venv by {inside}"


def test_pyenv_root_is_where_pyenv_is_looked_for(checkout: Checkout) -> None:
    (checkout.bin / "python3.13").unlink()
    inside = checkout.python(checkout.home / "else where/versions/3.13.2/bin/python3.13")
    assert f"python: {inside}\n" in checkout.setup("--plan", PYENV_ROOT=str(checkout.home / "else where"))[1]


@pytest.mark.parametrize("name", ["python3", "python"])
def test_a_default_python_will_do_when_it_is_3_13(bare: Checkout, name: str) -> None:
    bare.python(name)
    assert f"python: {name}\n" in bare.setup("--plan")[1]


def test_without_python_it_says_what_where_and_what_to_do(bare: Checkout) -> None:
    bare.node()
    bare.python("python3", "3.14.0")
    bare.python("python", "3.13.1t")
    bare.put(bare.bin / "python3.13", "#!/bin/sh\nexit 127\n")
    code, out, err = bare.setup()
    assert (code, out) == (1, "")
    for words in [
        "Python 3.13 is missing",
        "python3.13: is there but does not run",
        f"{bare.home}/.pyenv/versions/3.13*/bin/python3.13: not found",
        "python3: is 3.14.0",
        "python: is 3.13.1t",
        "pyenv install 3.13",
        "PYTHON=",
    ]:
        assert words in err
    assert sorted(path.name for path in bare.clone.iterdir()) == sorted(["devhost", *SOURCES, *GROUPS])


def test_a_named_interpreter_comes_first_and_is_the_only_one(checkout: Checkout) -> None:
    named = checkout.python(checkout.home / "py/python")
    assert checkout.setup(PYTHON=str(named))[0] == 0
    assert checkout.done()[0] == f"venv by {named}"
    older = checkout.python(checkout.home / "old/python", "3.12.1")
    code, _, err = checkout.setup(PYTHON=str(older))
    assert code == 1 and f"{older}: is 3.12.1" in err and "python3.13" not in err.split("Install it")[0]


def test_naming_another_interpreter_recreates_the_venv(ready: Checkout) -> None:
    assert ready.setup(PYTHON=str(ready.bin / "python3.13")) == (0, "", "")
    named = ready.python(ready.home / "py/python")
    assert "PYTHON names another interpreter" in ready.setup(PYTHON=str(named))[1]
    assert ready.done() == [f"venv by {named}", PIP]


# --- which node -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lack", ["no node", "an old node", "no npm"])
def test_without_a_usable_node_one_comes_from_pypi(bare: Checkout, lack: str) -> None:
    bare.python("python3.13")
    bare.wheel()
    if lack != "no node":
        bare.node(old=lack == "an old node", npm=lack != "no npm")
    assert bare.setup()[0] == 0
    _, _, pip, npm = bare.done()
    assert pip == PIP_NODE
    assert npm == f"node {bare.home}/wheel/lib/node_modules/npm/bin/npm-cli.js {NPM_CI.removeprefix('npm ')}"
    assert (bare.clone / ".venv/bin/node").readlink() == bare.home / "wheel/bin/node"
    assert bare.setup() == (0, "", "")


def test_without_node_and_without_the_wheel_it_says_what_to_install(bare: Checkout) -> None:
    bare.python("python3.13")
    bare.put(bare.home / "pip", "case \"$*\" in *nodejs*) echo 'no matching distribution' >&2; exit 1;; esac")
    code, _, err = bare.setup()
    assert code == 1
    assert "no matching distribution" in err and "Node.js is missing" in err and "Install Node.js 20 or newer" in err


def test_a_node_that_went_away_is_replaced_without_a_new_azurite(ready: Checkout) -> None:
    (ready.bin / "node").rename(ready.bin / "node-22")
    ready.wheel()
    assert ready.setup()[0] == 0
    assert ["requirements-nodejs.txt" in line for line in ready.done()] == [True]


# --- the files ------------------------------------------------------------------------------------------------------
