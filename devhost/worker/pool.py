"""The worker processes of an app: one for all functions, or one for each group that scales together on Flex Consumption."""

import asyncio

from devhost.worker.invocation_log import InvocationLog
from devhost.worker.model import FunctionInfo, InvocationResult, Trace, TypedValue
from devhost.worker.process import WorkerOptions, WorkerProcess

HTTP = "http"
"""The group of all HTTP functions."""


class WorkerPool:
    """All worker processes; an `Invoker`."""

    def __init__(self, options: WorkerOptions, *, split: bool, record: InvocationLog | None = None) -> None:
        """split: one process for each group; the first call of a group starts it. record: gets two lines for each invocation."""
        self._options, self._split, self._record = options, split, record
        self._workers: dict[str, WorkerProcess] = {}
        self._changed = asyncio.Event()
        self._url = ""

    @property
    def running(self) -> list[str]:
        """Names of the functions that are running now, one entry an invocation."""
        return [name for worker in self._workers.values() for name in worker.running]

    async def spawn(self) -> None:
        """Begin to start the process of the HTTP functions, or the only one."""
        await self._worker(HTTP).spawn()

    async def start(self) -> list[FunctionInfo]:
        """Start the process of the HTTP functions, or the only one, and return the app's functions. Raises AppIndexError."""
        return await self._worker(HTTP).ready()

    def tell_url(self, url: str) -> None:
        """Tell all processes the address under which users reach the app."""
        self._url = url
        for worker in self._workers.values():
            worker.tell_url(url)

    async def invoke(
        self,
        function: FunctionInfo,
        data: TypedValue,
        metadata: dict[str, TypedValue] | None = None,
        trace: Trace | None = None,
        *,
        process: str | None = None,
    ) -> InvocationResult:
        """See `Invoker`. process: the process that runs it; by default, that of the function's group."""
        worker = self._worker(process or self.group_of(function))
        if self._record is None:
            return await worker.invoke(function, data, metadata, trace)
        with self._record.invocation(function) as invocation:
            await worker.running_process()
            invocation.starts()
            result = await worker.invoke(function, data, metadata, trace)
            invocation.failed = result.error is not None
            return result

    def group_of(self, function: FunctionInfo) -> str:
        """Return the group whose process runs a function."""
        return function.group if self._split else HTTP

    async def ready(self, process: str) -> None:
        """Start a process if it does not run, and wait until it takes invocations. Raises AppIndexError."""
        await self._worker(process).ready()

    def has(self, process: str) -> bool:
        """Return True if the process was started."""
        return process in self._workers

    def end(self, process: str) -> list[str]:
        """End a process at once, without notice; return the names of the functions that were running. Its next call starts another."""
        worker = self._workers.pop(process, None)
        if worker is None:
            return []
        names = worker.running
        worker.kill()
        self._changed.set()
        return names

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing runs; False when something still does after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.running:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def kill(self) -> list[str]:
        """End all processes at once, without notice; return the names of the functions that were running."""
        names = self.running
        for worker in self._workers.values():
            worker.kill()
        return names

    async def last_lines(self) -> None:
        """Wait until everything that the ended processes have printed is shown."""
        for worker in self._workers.values():
            await worker.last_lines()

    def _worker(self, group: str) -> WorkerProcess:
        worker = self._workers.get(group)
        if worker is None:
            name = group if self._split else "all functions"
            worker = self._workers[group] = WorkerProcess(self._options, name, self._changed.set)
            if self._url:
                worker.tell_url(self._url)
        return worker
