"""Pictures of terminals say in words what is seen, keep each character in its column, and move only for readers who want motion."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from devhost.pictures.screens import COLUMN, Printed, Terminal, draw
from tests.paths import ROOT

SVG = "{http://www.w3.org/2000/svg}"
KIBIBYTE = 1024


def texts(svg: str) -> list[ET.Element]:
    """The texts below the terminals' titles, in their order."""
    return [each for group in ET.fromstring(svg).iter(f"{SVG}g") for each in group.iter(f"{SVG}text")]


def test_text_is_kept_as_it_is_and_long_lines_go_on_in_the_next_row() -> None:
    drawn = texts(draw("x", [Terminal("t", [Printed("a <b> & 'c'\n" + "1234567890" * 3)])], columns=20))
    assert [each.text for each in drawn] == ["a <b> & 'c'", "12345678901234567890", "1234567890"]
    assert [float(each.attrib["textLength"]) for each in drawn[1:]] == [round(20 * COLUMN, 1), round(10 * COLUMN, 1)]


def test_colours_of_the_program_are_those_of_the_picture() -> None:
    green, plain = texts(draw("x", [Terminal("t", [Printed("\x1b[1;32mok\x1b[0m fine")])]))
    assert (green.text, plain.text) == ("ok", " fine")
    assert green.attrib["fill"] != plain.attrib["fill"] and green.attrib["font-weight"] == "bold"


def test_still_screen_has_no_animation() -> None:
    assert "animation" not in draw("x", [Terminal("t", [Printed("a")])])


def test_line_of_a_recording_is_hidden_until_its_moment_and_seen_by_readers_without_motion() -> None:
    svg = draw("x", [Terminal("t", [Printed("first"), Printed("later", 4.0)])])
    style = re.search(r"<style>(.*)</style>", svg, re.DOTALL)
    assert style is not None
    before, _, moving = style[1].partition("@media (prefers-reduced-motion: no-preference)")
    assert "opacity" not in before and "0%, 50.00% {opacity: 0}" in moving
    first, later = (group.attrib for group in ET.fromstring(svg).iter(f"{SVG}g"))
    assert first == {} and later == {"class": "t400"}


def test_picture_says_in_words_what_is_seen() -> None:
    svg = ET.fromstring(draw('a "screen" & more', [Terminal("t", [Printed("a")])]))
    assert svg.attrib["aria-label"] == 'a "screen" & more' and svg.attrib["role"] == "img"


def test_recording_of_the_first_delivery_is_small_and_shows_it() -> None:
    svg = (ROOT / "docs" / "img" / "first-delivery.svg").read_text()
    assert len(svg) < 300 * KIBIBYTE
    assert any(re.search(r"delivered 204 hello", each.text or "") for each in texts(svg))
