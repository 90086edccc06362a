"""The hooks of azure.yaml: the package that they make, the deployment that they try again, and what they print. Nothing reaches a network:
pip, azd and az are stand-ins, and a server of the test plays Azure."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests import waiting
from tests.paths import ROOT

HOOKS = ROOT / "infra" / "hooks"
TOKEN = "token-of-whoever-is-logged-in"
GENERATED = "key-that-azd-made"
ROLE_ERROR = (
    "InaccessibleStorageException: Failed to access storage account for deployment: BlobUploadFailedException: Failed to upload blob to "
    "storage account: Response status code does not indicate success: 403 (This request is not authorized to perform this operation)."
)

PIP = """
import os, pathlib, sys, time
if "--version" in sys.argv:
    sys.exit(print("pip 99"))
with open(os.environ["LOG"], "a") as log:
    user, required = os.environ["PIP_USER"], os.environ["PIP_REQUIRE_VIRTUALENV"]
    log.write(f"user {user}, only in virtual environments {required}: " + " ".join(sys.argv[1:]) + "\\n")
if os.environ.get("PIP_DOES") == "fail":
    sys.exit("no such package")
target = pathlib.Path(sys.argv[sys.argv.index("--target") + 1])
for name, text in {
    "orjson/__init__.py": "LOADED = {'a', 'b', 'c'}\\n",
    "orjson/native.so": "binary",
    "bin/tool": "#!" + sys.executable,
    "orjson-1.dist-info/RECORD": "../../bin/tool,sha256=" + os.environ.get("PIP_SAYS", "x") + ",1\\norjson/__init__.py,,\\n",
}.items():
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    (target / name).write_text(text)
while os.environ.get("PIP_DOES") == "hang":
    time.sleep(0.1)
"""


# --- The package ----------------------------------------------------------------------------------------------------


class Repository:
    """A small repository with the hooks, and a pip that notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.root, self.log = folder / "repository", folder / "log"
        files = {
            "function_app.py": "import shared\n",
            "host.json": "{}",
            "requirements.txt": "orjson==1\n",
            "README.md": "",
            "tests/test_x.py": "",
            "shared/__init__.py": "",
            "shared/docs/page.py": "ODD = {'x', 'y', 'z'}\n",
            "shared/ui/page.html": "<html>",
            "shared/.hidden": "",
            "shared/tocsin-0.2.0-py3-none-any.whl": "",
        }
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        (self.root / "shared" / "core").mkdir()
        shutil.copy(ROOT / "shared" / "core" / "version.py", self.root / "shared" / "core")
        shutil.copytree(HOOKS, self.root / "infra" / "hooks", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pip").mkdir()
        (folder / "pip" / "__init__.py").touch()
        (folder / "pip" / "__main__.py").write_text(PIP)
        self.environment = {**os.environ, "PYTHONPATH": str(folder), "LOG": str(self.log)}

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "infra/hooks", *arguments]
        return subprocess.run(command, cwd=self.root, env={**self.environment, **more}, capture_output=True, text=True, check=False)

    def package(self, **more: str) -> bytes:
        done = self.run("package", **more)
        assert done.returncode == 0, done.stderr
        return (self.root / "build" / "app.zip").read_bytes()

    @property
    def asked(self) -> list[str]:
        """Return the requirements that pip was asked to install."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def files(self, place: str) -> set[str]:
        folder = self.root / place
        return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


SOURCES = {"function_app.py", "shared/__init__.py", "shared/docs/page.py", "shared/core/version.py"}
PACKAGES = ".python_packages/lib/site-packages"


def bytecode(source: str) -> str:
    folder, _, name = source.rpartition("/")
    return f"{folder + '/' if folder else ''}__pycache__/{name.removesuffix('.py')}.cpython-313.pyc"


def test_the_package_holds_the_app_its_packages_and_all_bytecode_and_no_other_file(repository: Repository) -> None:
    repository.package()
    sources = SOURCES | {f"{PACKAGES}/orjson/__init__.py"}
    others = {"host.json", "shared/ui/page.html", "shared/core/version.txt"}
    others |= {f"{PACKAGES}/{name}" for name in ("orjson/native.so", "orjson-1.dist-info/RECORD")}
    wanted = sources | others | {bytecode(each) for each in sources}
    assert repository.files("build/app") == wanted | {".funcignore"}
    with zipfile.ZipFile(repository.root / "build" / "app.zip") as package:
        assert set(package.namelist()) == wanted


def test_azd_leaves_no_bytecode_out_because_the_folder_has_rules_of_its_own_without_any(repository: Repository) -> None:
    repository.package()
    lines = (repository.root / "build" / "app" / ".funcignore").read_text().splitlines()
    assert lines and all(line.startswith("#") for line in lines)


def test_bytecode_is_taken_without_a_look_at_its_source_and_is_never_beside_the_working_copys_own(repository: Repository) -> None:
    repository.package()
    made = [path.read_bytes() for path in (repository.root / "build" / "app").rglob("*.pyc")]
    assert made and {each[4:8] for each in made} == {b"\1\0\0\0"}, "unchecked"
    kept = [path.read_bytes() for path in (repository.root / "shared").rglob("*.pyc")]
    assert b"\1\0\0\0" not in {each[4:8] for each in kept}, "later changes of the source would not be seen"


def test_the_same_sources_make_the_same_bytes_whatever_their_times_and_whichever_pip_and_hashes(repository: Repository) -> None:
    first = repository.package(PYTHONHASHSEED="1", PIP_SAYS="one")
    for path in (repository.root / "shared").rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    shutil.rmtree(repository.root / "build")
    assert repository.package(PYTHONHASHSEED="2", PIP_SAYS="two") == first
    assert len(repository.asked) == 2


def test_variables_of_the_user_for_python_and_pip_do_not_change_the_package(repository: Repository, tmp_path: Path) -> None:
    whole = repository.package()
    shutil.rmtree(repository.root / "build")
    odd = {"PYTHONPYCACHEPREFIX": str(tmp_path / "elsewhere"), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONOPTIMIZE": "2"}
    assert repository.package(**odd, PIP_USER="1", PIP_REQUIRE_VIRTUALENV="1") == whole
    assert repository.asked[-1].startswith("user 0, only in virtual environments 0: ")


def test_pip_takes_wheels_for_the_platform_alone_and_with_hashes(repository: Repository) -> None:
    repository.package()
    [asked] = repository.asked
    for part in (
        "--only-binary :all:",
        "--require-hashes",
        "--python-version 3.13",
        "--implementation cp",
        "--platform manylinux_2_28_x86_64",
        "--platform manylinux2014_x86_64",
        # Without it, pip on an older Python refuses what needs a newer one, although it is for another machine.
        "--ignore-requires-python",
    ):
        assert part in asked


def test_packages_are_kept_until_the_requirements_change(repository: Repository) -> None:
    repository.package()
    repository.package()
    assert len(repository.asked) == 1
    (repository.root / "requirements.txt").write_text("orjson==2\n")
    repository.package()
    assert len(repository.asked) == 2 and len(list((repository.root / "build" / "packages").iterdir())) == 1


def test_a_changed_source_is_in_the_next_package(repository: Repository) -> None:
    repository.package()
    (repository.root / "shared" / "docs" / "page.py").write_text("ODD = 2\n")
    repository.package()
    assert (repository.root / "build" / "app" / "shared" / "docs" / "page.py").read_text() == "ODD = 2\n"


def test_a_pip_that_fails_ends_the_deployment_and_leaves_no_half_package(repository: Repository) -> None:
    done = repository.run("package", PIP_DOES="fail")
    assert done.returncode == 1 and "Nothing is deployed" in done.stderr
    assert not (repository.root / "build" / "app").exists() and not (repository.root / "build" / "app.zip").exists()


def test_a_source_that_does_not_compile_ends_the_deployment(repository: Repository) -> None:
    (repository.root / "shared" / "docs" / "page.py").write_text("def broken(:\n")
    done = repository.run("package")
    assert done.returncode == 1 and "could not compile" in done.stderr and not (repository.root / "build" / "app.zip").exists()


async def test_after_a_kill_in_the_middle_the_next_run_makes_the_whole_package(repository: Repository) -> None:
    whole = repository.package()
    (repository.root / "requirements.txt").write_text("orjson==2\n")
    environment = {**repository.environment, "PIP_DOES": "hang"}
    process = subprocess.Popen([sys.executable, "infra/hooks", "package"], cwd=repository.root, env=environment, start_new_session=True)
    packages = repository.root / "build" / "packages"
    await waiting.eventually(lambda: list(packages.glob("*.unfinished-*/orjson/native.so")), "pip at work")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert repository.package() == whole
    assert not [each for each in repository.files("build") if "unfinished" in each]


def hook(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of the hooks, loaded anew."""
    monkeypatch.syspath_prepend(str(HOOKS))
    spec = importlib.util.spec_from_file_location(f"hook_{name}", HOOKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_python_of_the_platforms_version_the_package_is_not_compiled_and_says_so(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = hook("package", monkeypatch)
    monkeypatch.setattr(package, "find_compiler", lambda root: None)
    for name in ("PYTHONPATH", "LOG"):
        monkeypatch.setenv(name, repository.environment[name])
    assert package.build(repository.root) == 0
    assert "NOT compiled" in capsys.readouterr().out
    assert not list((repository.root / "build" / "app").rglob("*.pyc"))


def test_no_file_of_the_app_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    package = hook("package", monkeypatch)
    listed = subprocess.run(["git", "ls-files", "shared"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert listed and [name for name in listed if any(package.LEFT_OUT.fullmatch(part) for part in name.split("/"))] == []


def test_every_marker_of_the_lock_means_the_same_on_every_machine() -> None:
    """pip evaluates markers for the Python that runs pip, whatever the platform is that it installs for."""
    markers = re.findall(r"^[a-z][^;\n]*==[^;\n]*;(.*?)\\?$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    named = {name for marker in markers for name in re.findall(r"\b([a-z_]+) *(?:[=!<>]=?|in\b)", marker)}
    assert named <= {"implementation_name", "platform_python_implementation"}


@pytest.mark.parametrize("file", sorted(path.name for path in HOOKS.glob("*.py")))
def test_the_hooks_are_for_any_python_of_recent_years(file: str) -> None:
    tree = ast.parse((HOOKS / file).read_text(), feature_version=(3, 9))
    own = {path.stem for path in HOOKS.glob("*.py")}
    imported = {each.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    imported |= {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - own <= sys.stdlib_module_names


def test_both_shells_run_the_same_commands_and_a_package_that_cannot_be_made_stops_azd() -> None:
    azd = yaml.safe_load((ROOT / "azure.yaml").read_text())
    service = azd["services"]["app"]
    assert (service["remoteBuild"], service["dist"]) == (False, "build/app")
    assert [command for command in service["hooks"]] == ["prepackage", "predeploy", "postdeploy"]
    for name, shells in service["hooks"].items():
        posix, windows = shells["posix"], shells["windows"]
        assert windows == {**posix, "shell": "pwsh", "run": posix["run"].replace("python3", "python")}
        assert posix["run"].split()[:2] == ["python3", "infra/hooks"] and posix["shell"] == "sh"
        assert posix.get("continueOnError", False) is (name != "prepackage")


def test_an_unknown_command_prints_the_known_ones(repository: Repository) -> None:
    done = repository.run("publis")
    assert done.returncode == 2 and "before-deploy" in done.stderr


# --- Azure ----------------------------------------------------------------------------------------------------------


class PlayedAzure:
    """The app, its deployment site and Azure's management, on one port of this machine."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and token of each request."""
        self.failures: list[str] = []
        """Errors with which the next deployments end; then they succeed."""
        self.ends: Callable[[], tuple[int, dict[str, Any]]] = lambda: (200, {"status": 4})
        self.refuses = 0
        """Number of answers with which the app refuses to start."""
        self.deployed = False
        self.key = GENERATED
        """The admin key of the app."""
        self._running = ""
        azure = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                azure.requests.append((self.command, self.path, self.headers.get("authorization") or ""))
                status, answer = azure.answer(self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        if path.startswith("/api/publish"):
            assert path == "/api/publish?RemoteBuild=false" and body[:2] == b"PK"
            self._running = self.failures.pop(0) if self.failures else ""
            return 202, "17"
        if path == "/api/deployments/17":
            return (200, {"status": 3, "status_text": self._running}) if self._running else self.ends()
        if path.startswith("/api/v1/tenants"):
            return (200, {"items": []}) if self.requests[-1][2] == f"Bearer {self.key}" else (401, {})
        if path == "/api/healthz":
            return (200, {"status": "alive"}) if self.deployed else (404, {})
        if path == "/api/readyz":
            if self.refuses:
                return 503, {"type": "https://example/problems/start-refused", "detail": "A reference to a vault was not resolved."}
            return 200, {"status": "ready", "version": "0.2.0.dev7"}
        if "/restart" in path:
            self.refuses = max(0, self.refuses - 1)
        return 200, {}

    def posts(self, part: str) -> int:
        return len([path for method, path, _ in self.requests if method == "POST" and part in path])


@contextmanager
def served() -> Iterator[PlayedAzure]:
    azure = PlayedAzure()
    thread = threading.Thread(target=azure.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield azure
    finally:
        azure.server.shutdown()
        azure.server.server_close()
        thread.join()


@pytest.fixture
def azure() -> Iterator[PlayedAzure]:
    with served() as azure:
        yield azure


class Azd(Repository):
    """The hooks as azd runs them, with a package, and stand-ins of azd and az on PATH."""

    def __init__(self, folder: Path, azure: PlayedAzure) -> None:
        super().__init__(folder)
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.tool("azd", f"""case $1 in auth) printf '{{"token": "{TOKEN}"}}' ;; env) echo '"{GENERATED}"' ;; esac""")
        self.tool("az", "exit 1")
        self.environment |= {
            "PATH": str(self.tools),
            "TOCSIN_URL": azure.url,
            "TOCSIN_APP": "func",
            "TOCSIN_VAULT": "kv",
            "AZURE_SUBSCRIPTION_ID": "sub",
            "AZURE_RESOURCE_GROUP": "group",
            "TOCSIN_HOOK_SCM": azure.url,
            "TOCSIN_HOOK_ARM": azure.url,
            "TOCSIN_HOOK_WAIT": "0.01",
        }
        self.environment.pop("TOCSIN_ADMIN_KEY", None)
        (self.root / "build").mkdir()
        with zipfile.ZipFile(self.root / "build" / "app.zip", "w") as package:
            package.writestr("host.json", "{}")

    def tool(self, name: str, body: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.tools / name).chmod(0o755)

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = super().run(*arguments, **more)
        assert TOKEN not in done.stdout + done.stderr and GENERATED not in done.stdout + done.stderr
        return done


@pytest.fixture
def azd(tmp_path: Path, azure: PlayedAzure) -> Azd:
    return Azd(tmp_path, azure)


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_a_role_that_is_not_effective_yet_is_waited_for_three_times(failures: int, azd: Azd, azure: PlayedAzure) -> None:
    azure.failures = [ROLE_ERROR] * failures
    done = azd.run("publish", azure.url)
    assert done.returncode == 0, done.stderr
    assert azure.posts("/api/publish") == failures + 1
    assert {token for _, path, token in azure.requests if "healthz" not in path} == {f"Bearer {TOKEN}"}


def test_a_role_that_never_becomes_effective_is_given_up_with_azures_own_words(azd: Azd, azure: PlayedAzure) -> None:
    azure.failures = [ROLE_ERROR] * 9
    done = azd.run("publish", azure.url)
    assert done.returncode == 1 and "BlobUploadFailedException" in done.stderr
    assert azure.posts("/api/publish") == 4


@pytest.mark.parametrize(
    "failure", ["InvalidPackageContentException: no host.json", "InaccessibleStorageException: Name or service not known"]
)
def test_another_error_is_not_tried_again(failure: str, azd: Azd, azure: PlayedAzure) -> None:
    azure.failures = [failure] * 9
    done = azd.run("publish", azure.url)
    assert done.returncode == 1 and failure in done.stderr
    assert azure.posts("/api/publish") == 1


def test_a_deployment_whose_worker_is_gone_after_it_was_seen_has_succeeded(azd: Azd, azure: PlayedAzure) -> None:
    answers = iter([(404, {}), (200, {"status": 1}), (200, {"status": 2})])
    azure.ends = lambda: next(answers, (404, {}))
    assert azd.run("publish", azure.url).returncode == 0


def test_the_token_is_that_of_az_if_azd_has_none_and_without_both_nothing_is_sent(azd: Azd, azure: PlayedAzure) -> None:
    azd.tool("azd", "exit 1")
    azd.tool("az", f"echo {TOKEN}")
    assert azd.run("publish", azure.url).returncode == 0
    asked = len(azure.requests)
    azd.tool("az", "echo 'Please run az login' >&2; exit 1")
    done = azd.run("publish", azure.url)
    assert done.returncode == 1 and "azd auth login" in done.stderr and len(azure.requests) == asked


def test_a_package_that_was_not_made_is_named_with_the_command_that_makes_it(azd: Azd, azure: PlayedAzure) -> None:
    (azd.root / "build" / "app.zip").unlink()
    done = azd.run("publish", azure.url)
    assert done.returncode == 1 and "infra/hooks package" in done.stderr and not azure.requests


def test_an_app_that_has_a_package_is_left_to_azd(azd: Azd, azure: PlayedAzure) -> None:
    azure.deployed = True
    assert azd.run("before-deploy").returncode == 0
    assert [path for _, path, _ in azure.requests] == ["/api/healthz"]


@pytest.mark.parametrize("failure", [ROLE_ERROR, "another"])
def test_before_the_first_deployment_the_role_is_waited_for_and_azd_goes_on_whatever_happens(
    failure: str, azd: Azd, azure: PlayedAzure
) -> None:
    azure.failures = [failure]
    assert azd.run("before-deploy").returncode == 0
    assert azure.posts("/api/publish") == (2 if failure == ROLE_ERROR else 1)


def test_after_the_deployment_the_url_and_a_first_call_are_printed_and_no_key(azd: Azd, azure: PlayedAzure) -> None:
    done = azd.run("after-deploy")
    assert done.returncode == 0, done.stderr
    assert f"Tocsin 0.2.0.dev7 answers at {azure.url}" in done.stdout
    assert "azd env config get infra.parameters.firstAdminKey" in done.stdout and f"{azure.url}/api/v1/tenants" in done.stdout
    assert azure.posts("/config/configreferences/appsettings/refresh") == 1 and azure.posts("/restart") == 0


def test_the_first_call_takes_a_given_admin_key_from_its_variable(azd: Azd) -> None:
    done = azd.run("after-deploy", TOCSIN_ADMIN_KEY="a-key-of-the-user")
    assert '"$TOCSIN_ADMIN_KEY"' in done.stdout and "a-key-of-the-user" not in done.stdout and "firstAdminKey" not in done.stdout


@pytest.mark.parametrize("generated", [True, False])
def test_a_generated_key_that_the_app_does_not_take_is_not_shown_but_the_vault(generated: bool, azd: Azd, azure: PlayedAzure) -> None:
    azure.key = "a-key-that-was-in-the-vault"
    if not generated:
        azd.tool("azd", f"""[ $1 = auth ] && printf '{{"token": "{TOKEN}"}}'""")
    done = azd.run("after-deploy")
    assert "az keyvault secret show --vault-name kv" in done.stdout and "firstAdminKey" not in done.stdout


def test_the_printed_first_call_is_one_that_a_shell_can_run(azd: Azd, azure: PlayedAzure) -> None:
    printed = [line.strip() for line in azd.run("after-deploy").stdout.splitlines() if line.startswith("  ")]
    azd.tool("curl", 'cat; echo "$*"')
    shell = {**azd.environment, "PATH": f"{azd.tools}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", "\n".join(printed)], env=shell, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"Authorization: Bearer {GENERATED}", f"-s -H @- {azure.url}/api/v1/tenants"]


@pytest.mark.parametrize("refuses", [1, 3])
def test_a_reference_that_was_read_too_early_is_refreshed_until_the_app_starts(refuses: int, azd: Azd, azure: PlayedAzure) -> None:
    azure.refuses = refuses
    done = azd.run("after-deploy")
    assert done.returncode == 0, done.stderr
    assert azure.posts("/restart") == refuses and azure.posts("/appsettings/refresh") == refuses + 1
    path = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Web/sites/func/restart?api-version=2024-11-01"
    assert ("POST", path, f"Bearer {TOKEN}") in azure.requests


def test_an_app_that_does_not_become_ready_is_reported_with_its_reason(
    azure: PlayedAzure, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    azure.refuses = 1_000
    for name, value in {"TOCSIN_URL": azure.url, "TOCSIN_HOOK_WAIT": "0.01", "PATH": "/nowhere"}.items():
        monkeypatch.setenv(name, value)
    ready = hook("ready", monkeypatch)
    monkeypatch.setattr(ready, "PATIENCE", 0.05)
    assert ready.after_deploy() == 1
    assert "A reference to a vault was not resolved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "scm"),
    [
        ("https://func-x.azurewebsites.net", "https://func-x.scm.azurewebsites.net"),
        ("https://func-x-a1b2.westeurope-01.azurewebsites.net", "https://func-x-a1b2.scm.westeurope-01.azurewebsites.net"),
    ],
)
def test_the_deployment_site_is_beside_the_app(url: str, scm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = hook("publish", monkeypatch)
    assert publish.scm_url(url) == scm
    for wrong in ("func-x", "http://func-x.azurewebsites.net", "https://func-x"):
        with pytest.raises(ValueError, match="not the URL of an app"):
            publish.scm_url(wrong)
