"""The picture of README.md is what its text says."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from devhost.pictures.architecture import SOURCE, TARGET, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_drawn_from_its_text() -> None:
    assert draw(SOURCE.read_text()) == TARGET.read_text(), "run `make picture`"


def test_every_box_and_arrow_of_the_text_is_in_the_picture() -> None:
    text = SOURCE.read_text()
    found = ET.fromstring(draw(text))
    classes = [each.get("class") for each in found.iter()]
    assert classes.count("box") == text.count("[[boxes]]") and classes.count("arrow") == text.count("[[arrows]]")
    lines = {each.text for each in found.iter(f"{SVG}text")}
    assert {"LeaseKeeper", "tocsin agent", "one message a shard"} <= lines


def test_an_arrow_to_nowhere_is_an_error() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        draw(SOURCE.read_text().replace('to = "doors.left"', 'to = "nowhere.left"', 1))
