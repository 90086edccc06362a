"""Broken apps are refused loudly, with the reason; a good one is listed with its bindings."""

import json
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from devhost.azurite import ROOT
from tests import waiting

from .conftest import SAMPLE

HEAD = "import azure.functions as func\napp = func.FunctionApp()\n"
REQUEST = "req: func.HttpRequest"

BROKEN = {
    "no file": (None, "there is no function_app.py"),
    "syntax": ("def broken(:\n", "SyntaxError"),
    "raises": ("raise RuntimeError('no luck today')\n", "no luck today"),
    "exits": ("import sys\nsys.exit(3)\n", "sys.exit(3)"),
    "missing module": ("import no_such_module_at_all\n", "no_such_module_at_all"),
    "no app": ("x = 1\n", "Could not find top level function app"),
    "two apps": (HEAD + "other = func.FunctionApp()\n", "More than one"),
    "no functions": (HEAD, "no functions"),
    "same name": (
        HEAD + "for n in 'ab':\n  @app.function_name('f')\n  @app.route(n)\n  async def f(" + REQUEST + "): ...\n",
        "unique function name",
    ),
    "unbound parameter": (HEAD + f"@app.route('a')\nasync def f({REQUEST}, extra: str): ...\n", "extra"),
    "missing parameter": (HEAD + "@app.route('a')\nasync def f(): ...\n", "req"),
    "wrong type": (HEAD + "@app.route('a')\nasync def f(req: int): ...\n", "do not match"),
    "queue typed as timer": (
        HEAD + "@app.queue_trigger(arg_name='m', queue_name='q', connection='C')\nasync def f(m: func.TimerRequest): ...\n",
        "do not match",
    ),
    "admin route": (HEAD + f"@app.route('admin/x')\nasync def f({REQUEST}): ...\n", "must not start with admin"),
    "unknown constraint": (HEAD + f"@app.route('x/{{id:colour}}')\nasync def f({REQUEST}): ...\n", "unknown constraint 'colour'"),
    "unsupported trigger": (
        HEAD + "@app.blob_trigger(arg_name='b', path='x', connection='C')\nasync def f(b: func.InputStream): ...\n",
        "cannot serve a blobTrigger",
    ),
    "wrapped handler": (
        HEAD
        + dedent("""
            import functools
            def deco(f):
                @functools.wraps(f)
                async def inner(req): return await f(req, 1)
                return inner
            @app.route('a')
            @deco
            async def f(req: func.HttpRequest, store: int): ...
            """),
        "store",
    ),
}

# One process indexes one app, so each case needs a process; forks of one that has the imports behind it are quick.
FORKING = """
import os, sys
import azure.functions, croniter
from devhost.worker.library import AppIndexError, index
for folder in sys.argv[1:]:
    if os.fork() == 0:
        try:
            index(folder)
        except AppIndexError as error:
            print(f"{folder}\\0{error}\\0", end="", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("broken")
    folders = []
    for name, (source, _) in BROKEN.items():
        folder = root / name
        folder.mkdir()
        folders.append(str(folder))
        if source is not None:
            (folder / "function_app.py").write_text(source)
    result = waiting.run([sys.executable, "-c", FORKING, *folders], cwd=ROOT, check=True)
    parts = result.stdout.split("\0")
    return {Path(folder).name: reason for folder, reason in zip(parts[::2], parts[1::2], strict=False)}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_app_is_refused_with_the_reason(reasons: dict[str, str], name: str) -> None:
    assert name in reasons, "the app was accepted"
    assert BROKEN[name][1] in reasons[name]


def test_command_ends_with_the_reason_and_code_1(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(HEAD + f"@app.route('runtime/x')\nasync def f({REQUEST}): ...\n")
    command = [sys.executable, "-m", "devhost", "--app", str(tmp_path), "--no-azurite", "--no-receiver"]
    result = waiting.run(command, cwd=ROOT, env={"PORT": "0", "PATH": ""})
    assert result.returncode == 1
    assert "cannot be indexed" in result.stderr and "admin or runtime" in result.stderr
    assert "devhost ready" not in result.stdout


def test_good_app_is_listed_with_its_bindings_inside_a_running_loop() -> None:
    script = """
import asyncio, json, sys
from devhost.worker.library import AppIndexError, index
async def main():
    functions = index(sys.argv[1])
    try:
        index(sys.argv[1])
    except AppIndexError as error:
        again = str(error)
    print(json.dumps([again, {f.name: [f.trigger, list(f.bindings)] for f in functions}]))
asyncio.run(main())
"""
    result = waiting.run([sys.executable, "-c", script, str(SAMPLE)], cwd=ROOT, check=True)
    again, functions = json.loads(result.stdout)
    assert "once" in again
    assert list(functions) == sorted(functions)
    assert functions["fire"][0]["route"] == "items/{id}/fire"
    assert functions["work"][0]["queueName"] == "%SAMPLE_QUEUE%"
    assert functions["tick"][0]["type"] == "timerTrigger"
    assert {binding["type"] for binding in functions["noop"][1]} == {"httpTrigger", "http"}
