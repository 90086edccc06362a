"""Errors that a slow machine may have caused, and the decision on a run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from devhost.azurite import Azurite, AzuriteDidNotStart, PortInUse
from devhost.starting import DidNotStart
from tests import starting
from tests.paths import ROOT
from tests.run import Decision, Result, decide
from tests.verdicts import Failure, Verdicts, may_be_repeated
from tests.waiting import StillWaiting, all_output, ended, eventually, run, wait_until, within


def caught(raiser: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as found:
        raiser()
    return found.value


def _wrong_value_then_wait() -> None:
    try:
        raise AssertionError("2 owners")
    finally:
        raise StillWaiting("the end")


def _wait_then_wrong_value() -> None:
    try:
        raise StillWaiting("an event")
    finally:
        raise AssertionError("a traceback in the log")


def _wait_that_hides_its_context() -> None:
    try:
        raise AssertionError("2 owners")
    except AssertionError:
        raise StillWaiting("the end") from None


def _port_in_use() -> None:
    try:
        raise OSError("address in use")
    except OSError as error:
        raise PortInUse("port 1") from error


def _port_in_use_after_a_wrong_value() -> None:
    try:
        raise AssertionError("2 owners")
    finally:
        _port_in_use()


def _wrong_value_because_of_a_wait() -> None:
    try:
        raise StillWaiting("x")
    except StillWaiting as error:
        raise ValueError("y") from error


async def _task_group(*errors: BaseException) -> None:
    async def fail(error: BaseException) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in errors:
            group.create_task(fail(error))
        await asyncio.Event().wait()


def test_a_wait_that_ran_out_and_what_did_not_start_may_be_repeated() -> None:
    assert may_be_repeated(StillWaiting("x")) and may_be_repeated(DidNotStart("x")) and may_be_repeated(AzuriteDidNotStart("x"))
    assert may_be_repeated(ExceptionGroup("both", [StillWaiting("x"), ExceptionGroup("more", [DidNotStart("y")])]))
    assert may_be_repeated(caught(_port_in_use))
    assert may_be_repeated(caught(lambda: asyncio.run(_task_group(StillWaiting("x")))))


@pytest.mark.parametrize(
    "raiser",
    [
        _wrong_value_then_wait,
        _wait_then_wrong_value,
        _wait_that_hides_its_context,
        _port_in_use_after_a_wrong_value,
        _wrong_value_because_of_a_wait,
        lambda: asyncio.run(_task_group(StillWaiting("x"), ValueError("y"))),
    ],
)
def test_an_error_beside_it_before_it_or_after_it_is_never_repeated(raiser: Callable[[], None]) -> None:
    assert not may_be_repeated(caught(raiser))


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("1 == 2"),
        TimeoutError(),
        OSError("x"),
        asyncio.CancelledError(),
        ExceptionGroup("both", [StillWaiting("x"), AssertionError("y")]),
        StillWaiting("still waiting; last seen: Traceback (most recent call last):"),
    ],
)
def test_every_other_error_is_never_repeated(error: BaseException) -> None:
    assert not may_be_repeated(error)


def _sleeps() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(1000)"], stdout=subprocess.PIPE, text=True
    )


async def test_every_wait_that_runs_out_says_what_it_waited_for_and_what_it_saw_last() -> None:
    with pytest.raises(StillWaiting, match="for: rain; last seen: 0"):
        await eventually(lambda: 0, "rain", deadline=0)
    with pytest.raises(StillWaiting, match="for: rain; last seen: dry"):
        wait_until(lambda: 0, "rain", deadline=0, seen=lambda: "dry")
    with pytest.raises(StillWaiting, match="for: rain"):
        await within(asyncio.Event().wait(), "rain", deadline=0)
    with _sleeps() as process:
        try:
            with pytest.raises(StillWaiting, match="the end of rain"):
                ended(process, "rain", deadline=0)
            with pytest.raises(StillWaiting, match="the end of rain"):
                all_output(process, "rain", deadline=0)
        finally:
            process.kill()
    with pytest.raises(StillWaiting, match="the end of"):
        run([sys.executable, "-c", "import time; time.sleep(1000)"], deadline=0)


async def test_a_condition_that_can_no_longer_become_true_fails_at_once() -> None:
    def dead() -> bool:
        raise AssertionError("the event is dead")

    with pytest.raises(AssertionError, match="dead"):
        await eventually(dead, "its delivery")
    with pytest.raises(AssertionError, match="dead"):
        wait_until(dead, "its delivery")


async def test_a_time_out_of_the_work_itself_is_no_wait_that_ran_out() -> None:
    async def times_out() -> None:
        raise TimeoutError("of its own")

    work: Callable[[], Awaitable[None]] = times_out
    with pytest.raises(TimeoutError, match="of its own"):
        await within(work(), "it")


def test_an_emulator_that_ends_at_once_did_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    azurite = Azurite(memory=True)

    def spawn() -> None:
        azurite._output = open(__file__, "rb")  # noqa: SIM115  closed by stop
        azurite._process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)

    monkeypatch.setattr(azurite, "spawn", spawn)
    with pytest.raises(DidNotStart, match="Azurite did not start"):
        azurite.start()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("devhost: port 7071 (the API) is already in use; choose another with PORT=<port>\n", DidNotStart),
        ("devhost: [Errno 98] error while attempting to bind on address ('127.0.0.1', 7071): address already in use\n", DidNotStart),
        ("starting\ndevhost: Azurite did not start: it printed nothing\n", DidNotStart),
        ("devhost: the app cannot be indexed: no such module\n", AssertionError),
        ("Traceback (most recent call last):\ndevhost: Azurite did not start\n", AssertionError),
        ("", AssertionError),
    ],
)
def test_a_process_that_ended_did_not_start_only_for_a_port_or_the_emulator(text: str, error: type[Exception], tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    output.write_text(text)
    with subprocess.Popen([sys.executable, "-c", ""]) as process, pytest.raises((DidNotStart, AssertionError)) as raised:
        starting.ready(process, output)
    assert raised.type is error


def test_the_url_of_a_devhost_is_that_of_its_last_start(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    output.write_text(f"{starting.READY}http://127.0.0.1:1\nended\n{starting.READY}http://127.0.0.1:2\n")
    with _sleeps() as process:
        assert starting.ready(process, output, 1) == "http://127.0.0.1:2"
        process.kill()


def slow(name: str) -> Failure:
    return Failure(name, texts=["still waiting"])


def wrong(name: str) -> Failure:
    return Failure(name, False, ["1 == 2"], ["a wrong value"])


def result(*failures: Failure, code: int | None = None) -> Result:
    return Result(bool(failures) if code is None else code, Verdicts(passed=3, failures=list(failures)))


def test_a_run_without_failures_repeats_nothing_and_passes() -> None:
    assert decide(result(), result()) == Decision()
    assert decide(result(code=5), result()) == decide(result(), result(code=5)) == Decision()


def test_up_to_two_driven_tests_are_repeated() -> None:
    assert decide(result(slow("a"), slow("b")), result()).repeat == [slow("a"), slow("b")]
    assert decide(result(slow("a"), slow("b")), result()).faults == []


def test_three_fail_the_run() -> None:
    decision = decide(result(slow("a"), slow("b"), slow("c")), result())
    assert decision.repeat == [] and "3 tests are unstable" in decision.faults[0] and "a, b, c" in decision.faults[0]


def test_a_test_that_computes_is_never_repeated() -> None:
    decision = decide(result(), result(slow("a")))
    assert decision.repeat == [] and decision.faults[0].startswith("a: ")


def test_a_wrong_value_anywhere_fails_the_run_and_nothing_is_repeated() -> None:
    for driven, computing in ((result(slow("a"), wrong("b")), result()), (result(slow("a")), result(wrong("b")))):
        decision = decide(driven, computing)
        assert decision.repeat == [] and decision.faults[0] == "b: a wrong value" and decision.faults[1].startswith("a: not repeated")


def test_a_slow_run_repeats_nothing() -> None:
    assert decide(result(), None, repeats=False) == Decision()
    assert decide(result(slow("a")), None, repeats=False).faults


@pytest.mark.parametrize("broken", [Result(2, Verdicts()), Result(0, None), Result(-9, None), Result(1, Verdicts(passed=3))])
def test_a_run_that_ended_otherwise_than_by_its_tests_has_failed(broken: Result) -> None:
    for driven, computing in ((broken, result()), (result(), broken)):
        assert len(decide(driven, computing).faults) == 1
    assert decide(result(slow("a")), broken).repeat == []


def test_a_run_without_any_test_has_failed() -> None:
    assert decide(result(code=5), result(code=5)).faults == ["no test was selected"]


def test_only_waits_raise_the_error_of_a_wait_that_ran_out_and_only_starters_the_other() -> None:
    """Otherwise a fault of the code could pass for one of the machine."""
    raisers = {
        (name, path.relative_to(ROOT).as_posix())
        for folder in ("shared", "devhost", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
        for name in re.findall(r"^\s*raise (StillWaiting|DidNotStart|AzuriteDidNotStart|PortInUse)\(", path.read_text(), re.MULTILINE)
    }
    assert raisers == {
        ("StillWaiting", "tests/waiting.py"),
        ("DidNotStart", "tests/starting.py"),
        ("DidNotStart", "tests/browser/conftest.py"),
        ("DidNotStart", "tests/integration/kafka/conftest.py"),
        ("AzuriteDidNotStart", "devhost/azurite.py"),
        ("PortInUse", "devhost/azurite.py"),
    }
