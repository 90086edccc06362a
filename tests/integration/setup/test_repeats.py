"""`make setup` again: after changes, accidents, signals, and beside another run."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.waiting import all_output, wait_until

from .checkout import NPM_CI, PIP, Checkout


@pytest.mark.parametrize("name", ["requirements-dev.txt", "requirements-generators.txt"])
def test_changed_requirements_are_installed_and_nothing_else(ready: Checkout, name: str) -> None:
    (ready.clone / name).write_text("second version\n")
    assert ready.setup()[0] == 0
    assert ready.done() == [PIP]


def test_a_changed_lock_is_installed_and_nothing_else(ready: Checkout) -> None:
    (ready.clone / "package-lock.json").write_text("second version\n")
    assert ready.setup()[0] == 0
    assert ready.done() == [NPM_CI]


def test_a_venv_without_its_python_is_recreated(ready: Checkout) -> None:
    python = ready.clone / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3.13")
    code, out, _ = ready.setup()
    assert code == 0 and "its Python is gone" in out
    assert ready.done() == [f"venv by {ready.bin}/python3.13", PIP]


def test_a_moved_clone_gets_a_new_venv(ready: Checkout) -> None:
    ready.clone = ready.clone.rename(ready.clone.with_name("moved"))
    assert "the folder has moved" in ready.setup()[1]
    assert ready.done() == [f"venv by {ready.bin}/python3.13", PIP]


def test_deleted_node_modules_come_back(ready: Checkout) -> None:
    shutil.rmtree(ready.clone / "node_modules")
    assert ready.setup()[0] == 0
    assert ready.done() == [NPM_CI]


def test_a_venv_made_by_hand_is_kept_and_brought_up_to_date(ready: Checkout) -> None:
    (ready.clone / ".venv/.stamp-dev").unlink()
    assert ready.setup()[0] == 0
    assert ready.done() == [PIP]


def test_a_pip_that_gives_up_shows_why_and_the_next_run_goes_on(checkout: Checkout) -> None:
    checkout.put(checkout.home / "pip", "echo 'no route to the index' >&2; exit 1")
    code, _, err = checkout.setup()
    assert code == 1 and "no route to the index" in err and "requirements-dev.txt" in err
    (checkout.home / "pip").unlink()
    checkout.done()
    assert checkout.setup()[0] == 0
    assert checkout.done() == [PIP, NPM_CI]


def test_a_pip_that_was_killed_leaves_a_venv_that_is_recreated(checkout: Checkout) -> None:
    checkout.put(checkout.home / "pip", "kill -9 $$")
    assert checkout.setup()[0] == 1
    (checkout.home / "pip").unlink()
    checkout.done()
    assert "an earlier set-up was cut off" in checkout.setup()[1]
    assert checkout.done() == [f"venv by {checkout.bin}/python3.13", PIP, NPM_CI]


def test_so_does_a_pip_that_was_killed_over_the_wheel_of_node(bare: Checkout) -> None:
    bare.python("python3.13")
    bare.wheel()
    bare.put(bare.home / "pip", 'case "$*" in *nodejs*) kill -9 $$ ;; esac')
    assert bare.setup()[0] == 1
    (bare.home / "pip").unlink()
    assert "an earlier set-up was cut off" in bare.setup()[1]


def test_an_npm_that_fails_shows_why_and_is_tried_again(checkout: Checkout) -> None:
    npm = (checkout.bin / "npm").read_text()
    checkout.put(checkout.bin / "npm", "#!/bin/sh\necho 'npm error E404' >&2\nexit 1\n")
    code, _, err = checkout.setup()
    assert code == 1 and "npm error E404" in err and "npm could not install Azurite" in err
    checkout.put(checkout.bin / "npm", npm)
    checkout.done()
    assert checkout.setup()[0] == 0
    assert checkout.done() == [NPM_CI]


def held_in_pip(checkout: Checkout, say: str = ":", **env: str) -> tuple[subprocess.Popen[str], Callable[[], object]]:
    """A set-up that is inside pip, where it runs `say` first, and what lets it go on."""
    inside, gate = checkout.home / "inside", checkout.home / "gate"
    ends = []
    for pipe in (inside, gate):
        os.mkfifo(pipe)
        ends.append(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))  # both directions: neither side waits for the other to open it
    checkout.put(checkout.home / "pip", f"{say}; echo here >{inside}; read go <{gate}")
    process = checkout.start(**env)
    wait_until(lambda: select.select([ends[0]], [], [], 0)[0], "pip")
    return process, lambda: os.write(ends[1], b"go\n")


def test_a_long_step_shows_that_it_goes_on_and_where_it_is(checkout: Checkout) -> None:
    (checkout.clone / "requirements-dev.txt").write_text("a==1 \\\n    --hash=sha256:00\nb==2\nc==3 ; sys_platform == 'win32'\n")
    process, let_go = held_in_pip(checkout, "echo 'Collecting a==1'", SETUP_PROGRESS="0.05")
    assert process.stdout is not None
    assert any("1 of 2 packages fetched" in line for line in process.stdout)
    let_go()
    out, err = all_output(process, "the set-up")
    assert (process.returncode, err) == (0, "") and out.endswith("setup: ready\n")


def test_two_at_once_take_turns_and_the_second_finds_all_done(checkout: Checkout) -> None:
    first, let_go = held_in_pip(checkout)
    second = checkout.start()
    assert second.stdout is not None
    assert second.stdout.readline().startswith("setup: another set-up ")
    let_go()
    assert all_output(first, "the first")[1] == "" and all_output(second, "the second")[1] == ""
    assert (first.returncode, second.returncode) == (0, 0)
    assert checkout.done() == [f"venv by {checkout.bin}/python3.13", PIP, NPM_CI]


def test_a_signal_ends_it_at_once_and_the_next_run_starts_over(checkout: Checkout) -> None:
    process, _ = held_in_pip(checkout)
    process.send_signal(signal.SIGTERM)
    all_output(process, "the set-up")
    assert process.returncode == 130
    (checkout.home / "pip").unlink()
    code, out, _ = checkout.setup()  # would wait for a pip that lived on
    assert code == 0 and "an earlier set-up was cut off" in out
