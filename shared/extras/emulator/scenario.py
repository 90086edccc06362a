"""Scenarios: the machines, and steps with their times. They are read from TOML or YAML and checked before anything starts.

Durations are in ISO 8601 (`PT15M`) and are divided by the emulator's speed. A fault's `delay` is not: it tests the timeouts of clients,
whose clocks run at normal speed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, StringConstraints, TypeAdapter, ValidationError, model_validator

from ...core.durations import parse_duration
from ...core.errors import Problem, TocsinError
from ...maintenance.agent.config.config import BadConfig, parse
from ...web.fields.error_texts import Shaped
from ...web.fields.types import Duration, Strict
from ...web.parsing import MAX_ERRORS, content_problem
from ...web.problem import invalid_all

VmName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$"), Shaped("1 to 80 of A-Z a-z 0-9 . _ -")]
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), Shaped("1 to 64 of A-Z a-z 0-9 . _ -")]
EventId = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"), Shaped("a GUID")]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=64)]
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
"""The body of a faulty answer: the true document, or a malformed one."""


def _parse_others(value: object) -> int | None:
    """Parse a duration; return None for `never`."""
    if value == "never":
        return None
    try:
        return parse_duration(value) if isinstance(value, str) else _parse_others("")
    except ValueError:
        raise ValueError("must be a duration like PT2M, or never") from None


MAX_VMS = 1000
MAX_STEPS = 10_000
NOTICE = {"Freeze": "PT15M", "Reboot": "PT15M", "Redeploy": "PT10M", "Preempt": "PT30S", "Terminate": "PT5M"}
"""Shortest notice by type, as Azure documents it. Other types have 15 minutes."""


class VmSpec(Strict):
    """A machine. `host`: machines on one host wait for each other's approval."""

    name: VmName
    scope: Label = "scope"
    host: Label | None = None
    fault_domain: int = Field(0, ge=0, le=99)
    location: Label = "westeurope"
    hostname: ShortText | None = None
    incarnation: int = Field(1, ge=0)
    ids: Literal["as-is", "upper", "lower"] = "as-is"


class ImdsSpec(Strict):
    """The behaviour of the emulated service itself."""

    first_call: Duration = 0
    flow: Duration = 0
    idle: Annotated[Duration, Field(ge=1000)] = 86_400_000
    rate: int = Field(5, ge=1, le=1_000_000)
    unknown_event: Literal[200, 400, 404] = 400


class EventSpec(Strict):
    """An event to schedule for `vms`, for all machines on `host`, or for all machines of `fault_domain` (within `scope`)."""

    name: Label | None = None
    vms: list[VmName] | None = Field(None, min_length=1)
    host: Label | None = None
    fault_domain: int | None = None
    scope: Label | None = None
    id: EventId | None = None
    type: ShortText = "Freeze"
    source: ShortText = "Platform"
    duration: int | None = Field(None, ge=-1, le=86_400)
    description: Annotated[str, Field(max_length=500)] | None = None
    notice: Duration | None = None
    started: bool = False
    delay: Duration = 0
    others: Annotated[int | None, BeforeValidator(_parse_others)] = 0
    impact: Duration | None = None
    settles: Duration | None = None
    raw: dict[str, JsonValue] = Field({})
    omit: list[ShortText] = Field([])

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if [self.vms, self.host, self.fault_domain].count(None) != 2:
            raise ValueError("needs exactly one of vms, host, fault_domain")
        if self.scope is not None and self.fault_domain is None:
            raise ValueError("scope needs fault_domain")
        return self


class ChangeSpec(Strict):
    """A change of an event. `notice` counts from the step."""

    event: Label
    notice: Duration | None = None
    type: ShortText | None = None
    source: ShortText | None = None
    duration: int | None = Field(None, ge=-1, le=86_400)
    description: Annotated[str, Field(max_length=500)] | None = None
    vms: list[VmName] | None = Field(None, min_length=1)
    raw: dict[str, JsonValue] | None = None
    omit: list[ShortText] | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.model_fields_set <= {"event"}:
            raise ValueError("needs at least one field that changes, such as notice")
        return self


class ImpactSpec(Strict):
    """A further impact of an event that has started."""

    event: Label
    lasts: Annotated[Duration, Field(ge=1)]


class VmSelection(Strict):
    """A selection of machines; all machines if none are named."""

    vms: list[VmName] | None = Field(None, min_length=1)


class HideSpec(VmSelection):
    """An event to hide from the documents of some machines, or to list there again."""

    event: Label


class ApproveSpec(Strict):
    """An approval from outside, as if `vm` or an operator of its scope had sent it."""

    event: Label
    vm: VmName | None = None


class ResetSpec(VmSelection):
    """Switch the service off, as after a day without requests. Its next first incarnation is `incarnation`."""

    incarnation: int | None = Field(None, ge=0)


class SkipSpec(VmSelection):
    """Skip incarnations, so that machines miss some."""

    by: int = Field(ge=1, le=1_000_000)


class FaultSpec(VmSelection):
    """Faulty answers: for `times` requests, for the duration `lasts`, or until `clear`."""

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
    """One action, `at` a time after the start."""

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
    clear: VmSelection | None = None

    @model_validator(mode="after")
    def _one_verb(self) -> Self:
        if len(self.verbs()) != 1:
            raise ValueError(f"needs exactly one of {', '.join(sorted(set(StepSpec.model_fields) - {'at'}))}")
        return self

    def verbs(self) -> list[str]:
        """Return the names of its actions; exactly one for a valid step."""
        return [name for name in self.model_fields_set if name != "at" and getattr(self, name) is not None]

    def event_name(self) -> str | None:
        """Return the name of the event that it refers to, or None. That event must exist."""
        for spec in (self.change, self.impact, self.hide, self.show, self.approve):
            if spec is not None:
                return spec.event
        return self.cancel or self.vanish or self.start or self.complete

    def vm_names(self) -> list[str]:
        """Return the names of the machines that it refers to."""
        for spec in (self.event, self.change, self.hide, self.show, self.reset, self.skip, self.fault, self.clear):
            if spec is not None:
                return spec.vms or []
        return [self.approve.vm] if self.approve is not None and self.approve.vm is not None else []


class Scenario(Strict):
    """A whole scenario. Names that steps refer to must exist; this is checked when the scenario is read."""

    about: Annotated[str, Field(max_length=2000)] = ""
    imds: ImdsSpec = ImdsSpec()
    vms: list[VmSpec] = Field(min_length=1, max_length=MAX_VMS)
    steps: list[StepSpec] = Field([], max_length=MAX_STEPS)


class BadScenario(TocsinError):
    """Raised for a faulty scenario file. The message has a line for each fault, with its place and reason."""


_SCENARIO: TypeAdapter[Scenario] = TypeAdapter(Scenario)
_STEPS: TypeAdapter[list[StepSpec]] = TypeAdapter(Annotated[list[StepSpec], Field(min_length=1, max_length=MAX_STEPS)])


def scenario_of(document: Any) -> Scenario:
    """Return the scenario of a parsed document. Raises `Problem` 422 with JSON pointers."""
    scenario = _valid(_SCENARIO, document)
    found = _reference_faults(scenario)
    if found:
        raise invalid_all(found[:MAX_ERRORS])
    return scenario


def steps_of(document: Any) -> list[StepSpec]:
    """Return the steps of a parsed document: one step or an array of steps. Raises `Problem` 422."""
    return _valid(_STEPS, document if isinstance(document, list) else [document])


def _valid[T](adapter: TypeAdapter[T], document: Any) -> T:
    try:
        return adapter.validate_python(document, strict=True)
    except ValidationError as failure:
        found = content_problem(failure, document)
    # Raised here: as the context of the problem, pydantic's failure would keep the document in memory for ever.
    raise found


def load(path: Path) -> Scenario:
    """Read a scenario file: YAML if its name ends in .yaml or .yml, else TOML.

    Raises `BadScenario` with all faults: the line if it is known, the key and the reason.
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


def _reference_faults(scenario: Scenario) -> list[tuple[str, str]]:
    """Return references to names that do not exist, and names that are used twice."""
    found: list[tuple[str, str]] = []
    machines: set[str] = set()
    for index, vm in enumerate(scenario.vms):
        if vm.name in machines:
            found.append((f"/vms/{index}/name", f"another machine is already named {vm.name}"))
        machines.add(vm.name)
    events: set[str] = set()
    by_step: list[tuple[int, str, str]] = []
    # A stable sort: of steps at one time, the first in the file comes first.
    for index, step in sorted(enumerate(scenario.steps), key=lambda pair: pair[1].at):
        wrong = [f"there is no machine {name}" for name in step.vm_names() if name not in machines]
        if step.event is not None:
            wrong += _target_faults(scenario, step.event)
            if step.event.name in events:
                wrong.append(f"another event is already named {step.event.name}")
            if step.event.name is not None:
                events.add(step.event.name)
        named = step.event_name()
        if named is not None and named not in events:
            wrong.append(f"no event {named} is scheduled before this step")
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
    """Return a JSON pointer as a key of TOML, counted from 1: `/steps/2/event/type` becomes `steps[3].event.type: `."""
    parts = pointer.split("/")[1:]
    out = "".join(f"[{int(part) + 1}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")
    return f"{out}: " if out else ""


def _line(text: str, pointer: str) -> str:
    """Return the line at which the table that the pointer names begins, as `:17`; an empty text if it is not known."""
    found = re.match(r"/(vms|steps)/(\d+)", pointer)
    if found is None:
        return ""
    header = re.compile(rf"\s*\[\[\s*{found[1]}\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if header.match(line)]
    index = int(found[2])
    return f":{lines[index]}" if index < len(lines) else ""


def notice_of(event: EventSpec) -> int:
    """Return the notice in milliseconds: the given one, or the default of the type."""
    return event.notice if event.notice is not None else parse_duration(NOTICE.get(event.type, "PT15M"))
