"""The `tocsin` command without the half second that each start of it takes: a process that has loaded it forks for each command line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLIENT = """#!{python} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    said = chr(0).join([os.getcwd(), str(len(sys.argv)), *sys.argv, *(f"{{name}}={{value}}" for name, value in os.environ.items())])
    socket.send_fds(line, [len(said.encode()).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(said.encode())
    sys.exit(line.recv(1)[0])
"""
"""The program `tocsin`: hands its arguments, environment and streams over, and exits with the command's code."""


def _run(line: socket.socket) -> None:
    """Run a command line as a process of its own would."""
    size, streams, _, _ = socket.recv_fds(line, 4, 3)
    said = line.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL).decode().split("\0")
    count = int(said[1])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.chdir(said[0])
    os.environ.clear()
    os.environ.update(dict(each.split("=", 1) for each in said[2 + count :]))
    sys.argv = said[2 : 2 + count]
    from tocsin.cli.start import main  # type: ignore[import-not-found]

    code = 1
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout.flush()
        line.sendall(bytes([code]))


def _serve(address: str) -> None:
    import typer
    from tocsin.cli import main as frame  # type: ignore[import-not-found]

    typer.main.get_command(frame.build([]))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            line, _ = listener.accept()
            with line:
                child = os.fork()
                if not child:
                    try:
                        _run(line)
                    except BaseException:
                        traceback.print_exc()
                    os._exit(0)
                os.waitpid(child, 0)


@contextmanager
def preloaded(program: Path, library: Path) -> Iterator[None]:
    """Make `program` the command `tocsin` while the context lasts. library: the folder with the package `tocsin`."""
    address = str(program.with_suffix(".socket"))
    server = subprocess.Popen([sys.executable, __file__, address], env={**os.environ, "PYTHONPATH": str(library)})
    try:
        program.write_text(CLIENT.format(python=sys.executable, address=address))
        program.chmod(0o755)
        ends_at = time.monotonic() + 180
        while not os.path.exists(address):
            assert server.poll() is None and time.monotonic() < ends_at
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    _serve(sys.argv[1])
