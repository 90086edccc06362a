"""The modules of the page that read JSON, times and durations as text, and quote values for shells and Python."""

from __future__ import annotations

import ast
import json
import random
import shlex
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from shared.core.clock import to_millis
from shared.core.durations import parse_duration
from shared.scheduler.recurring.timing import instant_of, zone

from .page import Look

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIECES = ["{", "}", "[", "]", ",", ":", '"a"', '"\\u00e9"', '"\\x"', "1", "-0", "01", "1.5e3", "1.", "true", "nul", " ", "\n", '"']
TEXTS = [
    "plain",
    "it's",
    '$(touch x) `touch x` "$HOME"',
    "\\ \\' !! #",
    "-x",
    "a\nb\tc",
    "\u202edir\u2066",
    "\x7f\x9b31m",
    "\U0001f600 \U000e0001",
    "%s &&;|<>",
]


async def ask(look: Look, module: str, body: str, given: Any) -> Any:
    """Return what the body of a function makes of `given` with a module of the page as `m`."""
    return await look.page.evaluate(f"async (given) => {{ const m = await import('/api/dashboard/{module}.js'); {body} }}", given)


async def test_a_text_is_json_exactly_if_the_browser_can_parse_it_and_keeps_its_numbers(look: Look) -> None:
    draw = random.Random(7)
    texts = ["".join(draw.choice(PIECES) for _ in range(draw.randint(0, 9))) for _ in range(20_000)]
    body = """return given.filter((text) => {
      let [one, other] = [true, true];
      try { JSON.parse(text) } catch { one = false }
      try { m.tokens(text) } catch (error) { if (!(error instanceof m.NotJson)) throw error; other = false }
      return one !== other;
    })"""
    await look.open()
    assert await ask(look, "json", body, texts) == []
    text = '{ "big": 12345678901234567890, "exact": 1.10,\n "e": 1E5, "a": [ ], "payload": {"payload": [1, "}"]}, "t": "\\u0041" }'
    shown = await ask(
        look, "json", "return [m.compact(given), m.pretty(given), m.member(given, 'payload'), m.member(given, 'none') ?? null]", text
    )
    assert shown[0] == '{"big":12345678901234567890,"exact":1.10,"e":1E5,"a":[],"payload":{"payload":[1,"}"]},"t":"\\u0041"}'
    assert json.loads(shown[1]) == json.loads(text) and "12345678901234567890" in shown[1] and "1.10" in shown[1]
    assert shown[2:] == ['{"payload":[1,"}"]}', None]


async def test_what_is_not_json_is_explained_with_its_place(look: Look) -> None:
    await look.open()
    body = "try { m.tokens(given) } catch (error) { return error.message }"
    for text, why in (
        ('{\n "a": 1,\n}', "Line 3, column 1: expected a name in double quotes, found"),
        ("[1", "the text ends"),
        ("'a'", "expected a value"),
    ):
        assert why in await ask(look, "json", body, text)


async def test_a_json_text_is_the_same_value_in_python(look: Look) -> None:
    await look.open()
    value = {text: [text, True, None, 1.5, -3, {"": {}}] for text in TEXTS}
    literal = await ask(look, "json", "return m.python(given)", json.dumps(value))
    assert ast.literal_eval(literal) == value and literal.isprintable()
    big = await ask(look, "json", "return m.python(given)", "[12345678901234567890]")
    assert ast.literal_eval(big) == [12345678901234567890]


async def test_a_quoted_text_is_one_word_of_a_shell(look: Look) -> None:
    await look.open()
    for text in TEXTS:
        assert shlex.split(await ask(look, "copy", "return m.quoted(given)", text)) == [text]


async def test_a_local_time_means_the_same_instant_as_in_a_schedule(look: Look) -> None:
    await look.open()
    draw = random.Random(11)
    names = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu", "UTC", "Africa/Casablanca")
    changes = [(2027, 3, 28), (2027, 10, 31), (2027, 3, 14), (2027, 11, 7), (2027, 4, 4), (2027, 10, 3), (2011, 12, 30)]
    wanted = []
    for number in range(600):
        year, month, day = changes[number % len(changes)]
        local = datetime(year, month, day, draw.randint(0, 23), draw.choice((0, 15, 30, 45)))
        wanted.append((local.isoformat(timespec="minutes"), draw.choice(names)))
    found = await ask(
        look, "times", "return given.map(([local, zone]) => m.timeIn(local, zone)).map((each) => [each.at, each.change])", wanted
    )
    for (local, name), answer in zip(wanted, found, strict=True):
        assert tuple(answer) == instant_of(datetime.fromisoformat(local), zone(name)), (local, name)
    shown = await ask(look, "times", "return m.textIn(given, 'Europe/Berlin')", to_millis(datetime(2027, 3, 28, 1, tzinfo=UTC)))
    assert shown == datetime(2027, 3, 28, 3, tzinfo=ZoneInfo("Europe/Berlin")).strftime("%a %Y-%m-%d %H:%M:%S")


async def test_a_short_duration_is_written_as_the_api_takes_it(look: Look) -> None:
    await look.open()
    short = {
        "30s": 30_000,
        "1h 30m": 5_400_000,
        "500ms": 500,
        "2 d": 172_800_000,
        "1w": 604_800_000,
        "1.5h": 5_400_000,
        "pt5s": 5_000,
        "0s": 0,
    }
    for text, millis in short.items():
        written = await ask(look, "times", "return m.duration(given)", text)
        assert parse_duration(written) == millis
        assert await ask(look, "times", "return m.durationMs(given)", written) == millis
    assert await ask(look, "times", "return [m.duration(given), m.durationMs(given)]", "soon") == ["soon", None]
