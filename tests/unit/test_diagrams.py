"""The sequence diagrams of docs/explain show what the production code does."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.diagrams import SCENES, target
from tests.diagrams.drawing import Actor, Scene, Step, draw, wrapped


@pytest.mark.parametrize("name", SCENES)
def test_the_picture_shows_what_the_protocol_does(name: str) -> None:
    assert draw(SCENES[name]()) == target(name).read_text(), "run `python -m tests.diagrams`, and look at the picture"


def test_each_effect_is_an_arrow_and_each_note_a_box_within_the_picture() -> None:
    actors = (Actor("a", "writes"), Actor("b", "is written"))
    steps = (Step(0, "a", "b", "row"), Step(1.25, "b", "a", "no", "refused"), Step(2, "b", "b", "a note <that> is & stays text", "note"))
    root = ET.fromstring(draw(Scene("three effects", actors, steps)))
    classes = [each.get("class", "") for each in root.iter()]
    assert (classes.count("arrow"), classes.count("arrow refused"), classes.count("note")) == (1, 1, 1)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a", "b", "0 s", "1.2 s", "row", "no"} <= set(texts) and "a note <that> is & stays" in " ".join(filter(None, texts))
    wide, high = map(float, root.attrib["viewBox"].split()[2:])
    assert all(0 <= float(each.get("x", 0)) <= wide and 0 <= float(each.get("y", 0)) <= high for each in root.iter())


def test_texts_are_broken_between_words() -> None:
    assert wrapped("partition\xa01: no owner", 80) == ["partition\xa01:", "no owner"]
