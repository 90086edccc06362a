"""The stored form of every row type stays what `rows.json` says: rows of former releases can be read, and they can read new rows."""

from __future__ import annotations

import json

from .cases import cases
from .golden import FILE, as_text, describe


def test_stored_rows_are_as_recorded() -> None:
    """Names, types and encodings of properties, and how rows are read that lack a property or that a person has edited."""
    recorded = json.loads(FILE.read_text())
    described = describe()
    assert described["values"].keys() == recorded["values"].keys()
    for name, found in described["values"].items():
        assert as_text(found) == as_text(recorded["values"][name]), name
    assert as_text(described["tenants"]) == as_text(recorded["tenants"])


def test_every_value_survives_its_row() -> None:
    """Parsing a stored value gives the value again."""
    read_back = [case for case in cases() if case.parse is not None]
    assert read_back
    for case in read_back:
        assert case.parse is not None
        if case.name != "group with everything set":
            # A group's debts are rounded when they are stored.
            assert case.parse(case.encode(case.value)) == case.value, case.name
