"""A disk that a machine's crash may cut between any two steps: what was not flushed is then there, in part, or not at all."""

from __future__ import annotations

from collections.abc import Callable


class Cut(Exception):
    """The machine stopped here."""


class CuttableDisk:
    """The twin of `Folder`. `cut_after`: steps until the machine stops; None: it does not. `choose(n)`: what a crash leaves, of n ways.

    Files are held by number, names lead to them; a rename or a removal that was not flushed may be undone, from the last one back, as a
    journaling file system does.
    """

    def __init__(self, cut_after: int | None = None) -> None:
        self.cut_after = cut_after
        self.steps = 0
        self._now: dict[str, int] = {}
        self._flushed: dict[int, bytes] = {}
        self._content: dict[int, bytes] = {}
        self._names: list[dict[str, int]] = [{}]
        """The names as last flushed, and after each change since."""

    def crash(self, choose: Callable[[int], int] = lambda ways: 0) -> None:
        """The machine stops and starts again."""
        names = self._names[choose(len(self._names))]
        for file, content in self._content.items():
            flushed = self._flushed.get(file, b"")
            if content != flushed:
                half = content[: max(len(flushed), len(content) // 2)]
                self._content[file] = (flushed, content, half)[choose(3)]
        self._flushed = dict(self._content)
        self._now, self._names = dict(names), [dict(names)]

    def _step(self) -> None:
        self.steps += 1
        if self.cut_after is not None and self.steps > self.cut_after:
            raise Cut

    def read(self, name: str) -> bytes | None:
        return None if name not in self._now else self._content[self._now[name]]

    def write(self, name: str, data: bytes) -> None:
        self._step()
        self._file(name, fresh=True)
        self._content[self._now[name]] = data

    def append(self, name: str, data: bytes) -> None:
        self._step()
        self._file(name, fresh=False)
        self._content[self._now[name]] += data

    def flush(self, name: str) -> None:
        self._step()
        self._flushed[self._now[name]] = self._content[self._now[name]]

    def rename(self, name: str, new: str) -> None:
        self._step()
        self._now[new] = self._now.pop(name)
        self._names.append(dict(self._now))

    def remove(self, name: str) -> None:
        self._step()
        if self._now.pop(name, None) is not None:
            self._names.append(dict(self._now))

    def flush_names(self) -> None:
        self._step()
        self._names = [dict(self._now)]

    def _file(self, name: str, *, fresh: bool) -> None:
        if name in self._now and fresh:
            # Cut to nothing first, which may be all that a crash leaves.
            self._flushed[self._now[name]] = b""
        if name not in self._now:
            number = len(self._content)
            self._now[name] = number
            self._content[number] = b""
            self._names.append(dict(self._now))
