"""Scenarios: which machines there are, and what befalls them when. Read from TOML or YAML, checked before anything starts.

Spans are ISO 8601 durations (`PT15M`) and run faster by the emulator's speed, but a fault's `delay`: that is for the time-outs of clients,
whose clocks nobody speeds up.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError, model_validator

from ...core.durations import Duration, parse_duration
from ...core.errors import Problem, TocsinError
from ...maintenance.agent.config.config import BadConfig, parse
from ...web.fields.error_texts import Shaped
from ...web.fields.types import Strict
from ...web.parsing import MAX_ERRORS, content_problem
from ...web.problem import invalid_all

VmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$"), Shaped("1 to 80 of A-Z a-z 0-9 . _ -")]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), Shaped("1 to 64 of A-Z a-z 0-9 . _ -")]
EventId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"), Shaped("a GUID")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]
type Body = Literal[
    "document",
    "empty",
    "null",
    "truncated",
    "html",
    "list",
    "no-events",
    "events-null",
    "events-object",
    "text-incarnation",
    "no-incarnation",
]
"""What a fault answers with: the true document, or one of those that mean nothing."""


def _others(value: object) -> int | None:
    """None for `never`."""
    if value == "never":
        return None
    try:
        return parse_duration(value) if isinstance(value, str) else _others("")
    except ValueError:
        raise ValueError("must be a duration like PT2M, or never") from None


MOST_VMS = 1000
MOST_STEPS = 10_000
NOTICE = {"Freeze": "PT15M", "Reboot": "PT15M", "Redeploy": "PT10M", "Preempt": "PT30S", "Terminate": "PT5M"}
"""Least notice by type, as Azure tells it; others have 15 minutes."""


class VmSpec(Strict):
    """A machine. `host`: machines on one host wait for each other's approval."""

    name: VmName
    scope: Label = "scope"
    host: Label | None = None
    fault_domain: int = Field(0, ge=0, le=99)
    location: Label = "westeurope"
    hostname: Word | None = None
    incarnation: int = Field(1, ge=0)
    ids: Literal["as-is", "upper", "lower"] = "as-is"


class ImdsSpec(Strict):
    """How the emulated service itself behaves."""

    first_call: Duration = 0
    flow: Duration = 0
    idle: Annotated[Duration, Field(ge=1000)] = 86_400_000
    rate: int = Field(5, ge=1, le=1_000_000)
    unknown_event: Literal[200, 400, 404] = 400


class EventSpec(Strict):
    """An event to schedule, for `vms`, or for all on `host`, or for all of `fault_domain` (within `scope`)."""

    name: Label | None = None
    vms: list[VmName] | None = Field(None, min_length=1)
    host: Label | None = None
    fault_domain: int | None = None
    scope: Label | None = None
    id: EventId | None = None
    type: Word = "Freeze"
    source: Word = "Platform"
    duration: int | None = Field(None, ge=-1, le=86_400)
    description: Annotated[str, Field(max_length=500)] | None = None
    notice: Duration | None = None
    started: bool = False
    delay: Duration = 0
    others: Annotated[int | None, BeforeValidator(_others)] = 0
    impact: Duration | None = None
    settles: Duration | None = None
    raw: dict[str, JsonValue] = Field({})
    omit: list[Word] = Field([])

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if [self.vms, self.host, self.fault_domain].count(None) != 2:
            raise ValueError("needs exactly one of vms, host, fault_domain")
        if self.scope is not None and self.fault_domain is None:
            raise ValueError("scope goes with fault_domain")
        return self


class ChangeSpec(Strict):
    """What becomes different in an event. `notice` counts from the step."""

    event: Label
    notice: Duration | None = None
    type: Word | None = None
    source: Word | None = None
    duration: int | None = Field(None, ge=-1, le=86_400)
    description: Annotated[str, Field(max_length=500)] | None = None
    vms: list[VmName] | None = Field(None, min_length=1)
    raw: dict[str, JsonValue] | None = None
    omit: list[Word] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.model_fields_set <= {"event"}:
            raise ValueError("says nothing that changes")
        return self


class ImpactSpec(Strict):
    """One more impact of an event that has started."""

    event: Label
    lasts: Annotated[Duration, Field(ge=1)]


class SomeVms(Strict):
    """Machines; all of them where none are named."""

    vms: list[VmName] | None = Field(None, min_length=1)


class HideSpec(SomeVms):
    """An event that documents of some machines do not list, or list again."""

    event: Label


class ApproveSpec(Strict):
    """An approval from outside: as if `vm` had POSTed, or an operator of its scope."""

    event: Label
    vm: VmName | None = None


class ResetSpec(SomeVms):
    """The service switches itself off, as after a day without requests; the next first incarnation is `incarnation`."""

    incarnation: int | None = Field(None, ge=0)


class SkipSpec(SomeVms):
    """Incarnations that nobody sees."""

    by: int = Field(ge=1, le=1_000_000)


class FaultSpec(SomeVms):
    """Answers that are wrong: for `times` requests, or as long as it `lasts`, or until `clear`."""

    on: list[Literal["get", "post", "instance"]] = Field(["get", "post"], min_length=1)
    status: int = Field(200, ge=200, le=599)
    body: Body = "document"
    text: str | None = None
    delay: Duration = 0
    drop: bool = False
    applied: bool = False
    times: int | None = Field(None, ge=1)
    lasts: Annotated[Duration, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _a_fault(self) -> Self:
        if self.status == 200 and self.body == "document" and self.text is None and not self.delay and not self.drop:
            raise ValueError("needs one of status, body, text, delay, drop")
        return self


class StepSpec(Strict):
    """What happens `at` a time after the start: exactly one thing."""

    at: Duration = 0
    event: EventSpec | None = None
    change: ChangeSpec | None = None
    cancel: Label | None = None
    vanish: Label | None = None
    start: Label | None = None
    complete: Label | None = None
    impact: ImpactSpec | None = None
    hide: HideSpec | None = None
    show: HideSpec | None = None
    approve: ApproveSpec | None = None
    reset: ResetSpec | None = None
    skip: SkipSpec | None = None
    fault: FaultSpec | None = None
    clear: SomeVms | None = None

    @model_validator(mode="after")
    def _one_verb(self) -> Self:
        if len(self.verbs()) != 1:
            raise ValueError(f"needs exactly one of {', '.join(sorted(set(StepSpec.model_fields) - {'at'}))}")
        return self

    def verbs(self) -> list[str]:
        """The names of what it does; one, once it is checked."""
        return [name for name in self.model_fields_set if name != "at" and getattr(self, name) is not None]

    def names(self) -> str | None:
        """The event it speaks of, which must be there."""
        for spec in (self.change, self.impact, self.hide, self.show, self.approve):
            if spec is not None:
                return spec.event
        return self.cancel or self.vanish or self.start or self.complete

    def machines(self) -> list[str]:
        """The machines it names."""
        for spec in (self.event, self.change, self.hide, self.show, self.reset, self.skip, self.fault, self.clear):
            if spec is not None:
                return spec.vms or []
        return [self.approve.vm] if self.approve is not None and self.approve.vm is not None else []


class Scenario(Strict):
    """A whole scenario. Names that steps use must exist; this is checked when it is read, not when their time comes."""

    about: Annotated[str, Field(max_length=2000)] = ""
    imds: ImdsSpec = ImdsSpec()
    vms: list[VmSpec] = Field(min_length=1, max_length=MOST_VMS)
    steps: list[StepSpec] = Field([], max_length=MOST_STEPS)


class BadScenario(TocsinError):
    """A file that cannot be played; the message says where and why, one line a fault."""


_SCENARIO: TypeAdapter[Scenario] = TypeAdapter(Scenario)
_STEPS: TypeAdapter[list[StepSpec]] = TypeAdapter(Annotated[list[StepSpec], Field(min_length=1, max_length=MOST_STEPS)])


def scenario_of(document: Any) -> Scenario:
    """The scenario that a parsed document tells. Raises `Problem` 422 with JSON pointers."""
    try:
        scenario = _SCENARIO.validate_python(document, strict=True)
    except ValidationError as failure:
        raise content_problem(failure, document) from None
    found = _loose_ends(scenario)
    if found:
        raise invalid_all(found[:MAX_ERRORS])
    return scenario


def steps_of(document: Any) -> list[StepSpec]:
    """The steps in a parsed document: one, or an array of them. Raises `Problem` 422."""
    given = document if isinstance(document, list) else [document]
    try:
        return _STEPS.validate_python(given, strict=True)
    except ValidationError as failure:
        raise content_problem(failure, given) from None


def load(path: Path) -> Scenario:
    """The scenario in a file, YAML where its name ends in .yaml or .yml, else TOML.

    Raises `BadScenario` with all that is wrong in it: the line, where that can be told, the key, and why.
    """
    try:
        document = parse(path)
    except BadConfig as wrong:
        raise BadScenario(str(wrong)) from None
    try:
        return scenario_of(document)
    except Problem as problem:
        text = path.read_text()
        lines = [f"{path}{_line(text, error['pointer'])}: {_key(error['pointer'])}{error['detail']}" for error in problem.errors]
        raise BadScenario("\n".join(lines)) from None


def _loose_ends(scenario: Scenario) -> list[tuple[str, str]]:
    """Names used that nothing has, and names given twice."""
    found: list[tuple[str, str]] = []
    machines: set[str] = set()
    for index, vm in enumerate(scenario.vms):
        if vm.name in machines:
            found.append((f"/vms/{index}/name", "a machine of this name is there already"))
        machines.add(vm.name)
    events: set[str] = set()
    by_step: list[tuple[int, str, str]] = []
    # A stable sort: of steps at one time, the first in the file comes first.
    for index, step in sorted(enumerate(scenario.steps), key=lambda pair: pair[1].at):
        wrong = [f"there is no machine {name}" for name in step.machines() if name not in machines]
        if step.event is not None:
            wrong += _target_faults(scenario, step.event)
            if step.event.name in events:
                wrong.append("an event of this name is there already")
            if step.event.name is not None:
                events.add(step.event.name)
        named = step.names()
        if named is not None and named not in events:
            wrong.append(f"no event {named} is scheduled before this")
        by_step += [(index, f"/steps/{index}/{step.verbs()[0]}", each) for each in wrong]
    return found + [(where, what) for _, where, what in sorted(by_step)]


def _target_faults(scenario: Scenario, event: EventSpec) -> list[str]:
    if event.host is not None and not any(vm.host == event.host for vm in scenario.vms):
        return [f"no machine is on host {event.host}"]
    if event.fault_domain is not None and not any(
        vm.fault_domain == event.fault_domain and event.scope in (None, vm.scope) for vm in scenario.vms
    ):
        return ["no machine is in that fault domain and scope"]
    return []


def _key(pointer: str) -> str:
    """`/steps/2/event/type` as TOML's readers say it: `steps[3].event.type: `, counted from 1."""
    parts = pointer.split("/")[1:]
    out = "".join(f"[{int(part) + 1}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")
    return f"{out}: " if out else ""


def _line(text: str, pointer: str) -> str:
    """`:17`, the line at which the pointed-at table of an array begins; empty where that cannot be told."""
    found = re.match(r"/(vms|steps)/(\d+)", pointer)
    if found is None:
        return ""
    header = re.compile(rf"\s*\[\[\s*{found[1]}\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if header.match(line)]
    index = int(found[2])
    return f":{lines[index]}" if index < len(lines) else ""


def notice_of(event: EventSpec) -> int:
    """Milliseconds of notice: as told, or as is usual for its type."""
    return event.notice if event.notice is not None else parse_duration(NOTICE.get(event.type, "PT15M"))
