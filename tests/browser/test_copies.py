"""The requests that the dashboard gives to copy: they run as they are, say what the page says, and run nothing else, whatever they hold."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from playwright.async_api import Locator

from devhost.azurite import ROOT
from tests import waiting
from tests.integration.scheduler.conftest import ADMIN_KEY

from .page import Look, expect
from .stage import DEMO_KEY, EVIL, Stage
from .test_forms import new_event, new_schedule, open_event, visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

KINDS = ("curl", "Python", "Command")
ATTACKS = {
    "quote": "'; touch taken; '",
    "dollar": "$(touch taken)",
    "ticks": "`touch taken`",
    "double": '"; touch taken; #',
    "backslash": "\\'; touch taken #",
    "history": "!! !touch !$ ^a^b",
    "pattern": "$& $' $` $1",
    "home": "~ $HOME ${IFS} %s {a,b} *",
    "python": '""" + __import__("os").system("touch taken") + """',
    "markup": EVIL,
}
PAYLOAD = {
    **ATTACKS,
    "lines": "a\nEND_OF_BODY\ntouch taken\n",
    "hidden": "\u202e\u009b31m\x7f\u2028",
    "big": 12345678901234567890,
    "none": None,
}


@dataclass
class Shell:
    """A folder in which copied texts run, with `tocsin` as an installed wheel has it."""

    folder: Path
    environment: dict[str, str]

    async def run(self, text: str, kind: str, *, interactive: bool = False) -> CompletedProcess[str]:
        """Run a text, which must not leave a file or print the key."""
        assert DEMO_KEY not in text and ADMIN_KEY not in text
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        if kind == "Python":
            command, options = [sys.executable, "-"], {"input": text}
        elif interactive:
            command, options = ["bash", "--norc", "-i"], {"input": f"set -o history -o histexpand\n{text}"}
        else:
            command, options = ["sh", "-c", text], {}
        made = await asyncio.to_thread(waiting.run, command, cwd=work, env=self.environment, **options)
        assert list(work.iterdir()) == [], text
        return made


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


def make_shell(folder: Path) -> Shell:
    """A shell whose `tocsin` and `import tocsin` are the product's."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "tocsin").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shared.cli "$@"\n')
    (programs / "tocsin").chmod(0o755)
    (programs / "tocsin.py").write_text("import sys\n\nimport shared\n\nsys.modules[__name__] = shared\n")
    home = folder / "home"
    home.mkdir()
    path = f"{programs}:{os.environ['PATH']}"
    return Shell(folder, {"PATH": path, "PYTHONPATH": f"{ROOT}:{programs}", "HOME": str(home), "TOCSIN_KEY": DEMO_KEY, "TERM": "dumb"})


async def texts(dialog: Locator, request: str | None = None) -> dict[str, str]:
    """The texts to copy, by kind. request: the choice, where there are several."""
    part = dialog.locator("details.copy")
    if await part.get_attribute("open") is None:
        await part.locator("summary").click()
    if request is not None:
        await part.get_by_label("Request").select_option(request)
    found = {}
    for kind in KINDS:
        await part.get_by_role("button", name=kind, exact=True).click()
        await expect(part.get_by_role("button", name=kind, exact=True)).to_have_attribute("aria-pressed", "true")
        found[kind] = await part.locator("pre").inner_text()
    return found


def id_in(output: str) -> str:
    """The id of the event that a copied text has made."""
    return str(json.loads(output)["id"]) if output.startswith("{") else output.split()[0]


async def test_the_content_of_a_form_is_copied_and_runs(look: Look, stage: Stage, shell: Shell) -> None:
    dialog = await new_event(look)
    await dialog.get_by_label("Delay").fill("3h")
    await dialog.get_by_label("Payload (JSON)").fill('{"number": 12345678901234567890, "it": "it\'s"}')
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Labels").fill("team=it's blue")
    await dialog.get_by_label("Ordering key").fill("-one of 'them'")
    await dialog.get_by_label("Expires").fill("90m")
    await dialog.get_by_label("Path").fill("/orders/17")
    for kind, text in (await texts(dialog)).items():
        made = await shell.run(text, kind)
        assert made.returncode == 0, (text, made.stderr)
        found = stage.call("GET", f"events/{id_in(made.stdout)}")
        assert (found["labels"], found["ordering_key"], found["expires"]) == ({"team": "it's blue"}, "-one of 'them'", "PT1H30M")
        assert found["payload"] == {"number": 12345678901234567890, "it": "it's"} and found["target"]["path"] == "/orders/17"


async def test_the_copy_of_a_hostile_event_makes_an_event_like_it_and_runs_nothing_else(look: Look, stage: Stage, shell: Shell) -> None:
    hostile = {
        "id": "hostile",
        "due": "2031-01-01T00:00:00Z",
        "payload": PAYLOAD,
        "labels": ATTACKS,
        "ordering_key": "'`touch taken`$(touch taken)",
    }
    hostile |= {"target": {"path": "/a'b", "query": {"q": "$(touch taken)'"}, "headers": {"X-It": "'; touch taken '"}}}
    stage.call("POST", "events", hostile)
    dialog = await open_event(look, "hostile")
    given = await texts(dialog, "A new event like it")
    for kind, text in given.items():
        made = await shell.run(text, kind)
        assert made.returncode == 0, (text, made.stderr)
        found = stage.call("GET", f"events/{id_in(made.stdout)}")
        assert found["id"] != "hostile"
        for name in ("payload", "labels", "ordering_key", "target"):
            assert found[name] == stage.call("GET", "events/hostile")[name], (kind, name)
    for kind in ("curl", "Command"):
        made = await shell.run(given[kind], kind, interactive=True)
        assert made.returncode == 0, made.stderr
    for kind, text in (await texts(dialog, "Read it")).items():
        made = await shell.run(text, kind)
        assert made.returncode == 0 and "hostile" in made.stdout, (text, made.stderr)


async def test_requests_of_each_kind_are_copied_with_their_terms(look: Look, stage: Stage, shell: Shell) -> None:
    terms = {"retry": {"schedule": ["PT5S", "PT1M30S"], "within": "PT1H"}, "timeout": "PT2.5S", "expires": "PT1H", "flex": "PT5M"}
    kinds: dict[str, dict[str, object]] = {
        "copy-get": {"target": {"path": "/a", "method": "GET"}},
        "copy-delete": {"target": {"method": "DELETE"}, "payload": {"a": 1}},
        "copy-xml": {"payload": "PGEvPg==", "content_type": 'text/xml; charset="utf-8"'},
    }
    for id, content in kinds.items():
        stage.call("POST", "events", {"id": id, "due": "2031-01-01T00:00:00Z", **terms, **content})
        dialog = await open_event(look, id)
        given = await texts(dialog, "A new event like it")
        assert [kind for kind, text in given.items() if not text] == (["Command"] if "content_type" in content else [])
        for kind, text in given.items():
            if text:
                made = await shell.run(text, kind)
                assert made.returncode == 0, (text, made.stderr)
                found = stage.call("GET", f"events/{id_in(made.stdout)}")
                assert {name: found.get(name) for name in (*terms, *content)} == {**terms, **content}, (kind, text)


async def test_a_hostile_id_in_a_form_is_copied_without_harm(look: Look, shell: Shell) -> None:
    dialog = await new_event(look)
    for name in ("quote", "dollar", "backslash", "python"):
        await dialog.get_by_label("Id (optional)").fill(ATTACKS[name])
        given = await texts(dialog)
        for kind in KINDS if name == "quote" else ("curl",):
            # The service refuses the id.
            assert (await shell.run(given[kind], kind)).returncode != 0, given[kind]
    dialog = await new_schedule(look)
    for attack in ("$(touch taken)'; touch taken; '", "../../tenants/x?y#z", "-x"):
        await dialog.get_by_label("Id", exact=True).fill(attack)
        given = await texts(dialog)
        for kind in KINDS if attack == "-x" else ("curl", "Command"):
            made = await shell.run(given[kind], kind)
            assert (made.returncode == 0) is (attack == "-x"), (given[kind], made.stderr)


async def test_a_schedule_is_copied_as_it_is(look: Look, stage: Stage, shell: Shell) -> None:
    content = {
        "cron": "0 8 * * MON",
        "timezone": "Europe/Berlin",
        "start": "2030-01-01T00:00:00.250Z",
        "end": "2040-01-01T00:00:00.000Z",
        "jitter": "PT1M30S",
        "catch_up": {"policy": "all", "within": "PT2H"},
        "exclude": {"dates": ["2031-01-06", "2031-01-07"], "calendars": []},
        "at_most_once_per": "week",
        "ordering_key": "'$(touch taken)",
        "channels": ["busy", "default"],
        "on_dead": "default",
    }
    stage.call("PUT", "schedules/copied", {**content, "payload": PAYLOAD})
    await visit(look, DEMO_KEY, "?view=schedules")
    await (await look.shows("schedules")).get_by_role("button", name="copied", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.locator("details.copy")).to_be_visible()
    for kind, text in (await texts(dialog, "This schedule")).items():
        stage.call("DELETE", "schedules/copied")
        made = await shell.run(text, kind)
        assert made.returncode == 0, (text, made.stderr)
        found = stage.call("GET", "schedules/copied")
        assert {name: found[name] for name in content} == content and found["payload"] == PAYLOAD, kind
    for kind, text in (await texts(dialog, "Read it")).items():
        made = await shell.run(text, kind)
        assert made.returncode == 0 and "copied" in made.stdout, (text, made.stderr)
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("copied-interval")
    await dialog.get_by_label("Rule").select_option("fixed interval")
    for kind, text in (await texts(dialog)).items():
        assert (await shell.run(text, kind)).returncode == 0, text
    assert stage.call("GET", "schedules/copied-interval")["every"] == "PT15M"


async def test_an_admin_key_copies_the_tenant_with_it(look: Look, stage: Stage, shell: Shell) -> None:
    stage.call("PUT", "tenants/copying", {}, ADMIN_KEY)
    stage.call("PUT", "tenants/copying/channels/default", {"type": "http", "url": stage.receiver.url("/copying")}, ADMIN_KEY)
    dialog = await new_event(look, ADMIN_KEY, "?tenant=copying&view=events")
    shell.environment["TOCSIN_KEY"] = ADMIN_KEY
    await dialog.get_by_label("Delay").fill("3h")
    for kind, text in (await texts(dialog)).items():
        made = await shell.run(text, kind)
        assert made.returncode == 0, (text, made.stderr)
    assert len(stage.listed("events?tenant=copying", ADMIN_KEY)) == 3


async def test_a_body_too_long_for_an_argument_is_read_from_the_text(look: Look, stage: Stage, shell: Shell) -> None:
    stage.call("POST", "events", {"id": "long", "due": "2031-01-01T00:00:00Z", "payload": ["x' $(touch taken)\n" * 10_000]})
    dialog = await open_event(look, "long")
    for kind, text in (await texts(dialog, "A new event like it")).items():
        # A shell reads it as a file, as it reads what is pasted: an argument of this length is refused by the system.
        made = await shell.run(text, kind, interactive=True)
        assert made.returncode == 0, made.stderr[-500:]
        lines = [line for line in made.stdout.splitlines() if line]
        assert stage.call("GET", f"events/{id_in(lines[-1])}")["payload"] == ["x' $(touch taken)\n" * 10_000]


async def test_what_the_command_cannot_say_is_refused_with_the_reason(look: Look, stage: Stage) -> None:
    stage.call("POST", "events", {"id": "retry-of-its-own", "delay": "PT3H", "payload": 1, "retry": {"attempts": 3, "first": "PT10S"}})
    stage.call("POST", "events", {"id": "xml-to-copy", "delay": "PT3H", "payload": "PGEvPg==", "content_type": "text/xml"})
    stage.call("POST", "events", {"id": "unseen", "delay": "PT3H", "payload": 1, "labels": {"note": "a\u202eb\u009b"}})
    for event_id, reason in (("xml-to-copy", "from a file"), ("unseen", "invisible characters")):
        dialog = await open_event(look, event_id)
        found = await texts(dialog, "A new event like it")
        assert found["Command"] == "" and all(found[kind].isascii() for kind in ("curl", "Python"))
        await expect(dialog.locator("details.copy")).to_contain_text(reason)
    retried = await texts(await open_event(look, "retry-of-its-own"), "A new event like it")
    assert 'retry={"attempts": 3, "first": timedelta(seconds=10)}' in retried["Python"]
    assert """--retry '{"attempts":3,"first":"PT10S"}'""" in retried["Command"]


async def test_the_button_copies_the_text_that_is_shown(look: Look, stage: Stage) -> None:
    await look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dialog = await open_event(look, "patient")
    shown = (await texts(dialog, "Read it"))["Command"]
    await dialog.get_by_role("button", name="Copy", exact=True).click()
    await expect(dialog.locator("details.copy").get_by_role("status")).to_have_text("Copied.")
    assert (await look.reads("navigator.clipboard.readText()")).strip() == shown.strip()
    await look.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    dialog = await open_event(look, "patient")
    shown = (await texts(dialog, "Read it"))["Command"]
    await dialog.get_by_role("button", name="Copy", exact=True).click()
    await expect(dialog.locator("details.copy").get_by_role("status")).to_contain_text("The text is selected")
    assert str(await look.reads("getSelection().toString()")).strip() == shown.strip()


async def test_the_programs_that_run_copied_texts_are_there() -> None:
    assert all(shutil.which(name) for name in ("curl", "sh", "bash"))
