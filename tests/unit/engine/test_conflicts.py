"""Attempts are repeated for as long as their conditional writes lose."""

from __future__ import annotations

import pytest

from shared.core.errors import Problem
from shared.engine.conflicts import CONFLICT, WriteConflict, retry_on_conflict, retry_steps, try_repeatedly
from shared.engine.effects import LOST, Steps, Write, write
from shared.storage.ports import Applied, Insert, WriteRefused


def losing(times: int) -> tuple[list[int], object]:
    calls: list[int] = []

    async def attempt() -> str | WriteConflict:
        calls.append(len(calls))
        return "won" if len(calls) > times else CONFLICT

    return calls, attempt


async def test_the_first_attempt_without_a_conflict_counts() -> None:
    calls, attempt = losing(2)
    assert await retry_on_conflict(attempt, 5, RuntimeError) == "won"  # type: ignore[arg-type]
    assert len(calls) == 3


async def test_attempts_are_bounded() -> None:
    calls, attempt = losing(9)
    with pytest.raises(Problem) as raised:
        await retry_on_conflict(attempt, 4, lambda: Problem(409, "changed-meanwhile", "others"))  # type: ignore[arg-type]
    assert raised.value.status == 409 and len(calls) == 4
    assert await try_repeatedly(attempt, 2) == CONFLICT  # type: ignore[arg-type]


def attempt() -> Steps[str | WriteConflict]:
    answer = yield from write("T", "p", Insert("r", {}))
    return "won" if isinstance(answer, Applied) else WriteConflict(answer)


@pytest.mark.parametrize(
    "answers, result",
    [
        ([Applied(["1"])], "won"),
        ([LOST, WriteRefused(0, "exists"), Applied(["1"])], "won"),
        ([LOST, LOST, WriteRefused(0, "exists")], WriteConflict(WriteRefused(0, "exists"))),
        ([WriteRefused(0, "exists"), WriteRefused(0, "exists"), LOST], WriteConflict(LOST)),
    ],
)
def test_the_last_answer_says_why_attempts_ended(answers: list[object], result: object) -> None:
    steps = retry_steps(attempt, 3)
    assert isinstance(next(steps), Write)
    for answer in answers[:-1]:
        assert isinstance(steps.send(answer), Write)
    with pytest.raises(StopIteration) as ended:
        steps.send(answers[-1])
    assert ended.value.value == result
