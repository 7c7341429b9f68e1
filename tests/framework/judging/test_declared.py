"""Clauses and their applicability in the TOML files of a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fencepost import Applicability, Clause, Promise, UsageError, declared


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package, whose file `clauses.toml` a test writes."""
    package = tmp_path / "acme_declared"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_declared", raising=False)
    declared.cache_clear()
    return package / "clauses.toml"


def test_a_file_declares_clauses_and_what_others_are_on_its_plane(lamps: Path) -> None:
    lamps.write_text(
        """
        plane = "lamps"

        [[clause]]
        id = "LAMP-1"
        source = "the manual"
        planes = ["lamps"]
        says = "It is lit."

        [[applicability]]
        clauses = ["X-1", "X-2"]
        promise = "witnessed"
        formerly = "LAMP-2"
        how = "seen by its neighbours"
        """
    )
    found = declared("acme_declared", "clauses.toml")
    assert found.clauses == (Clause("LAMP-1", "the manual", ("lamps",), "It is lit."),)
    assert found.applicability == tuple(
        Applicability(name, "lamps", Promise.WITNESSED, "seen by its neighbours", "LAMP-2")
        for name in ("X-1", "X-2")
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[clause", "Expected ']]' at the end of an array declaration"),
        ('[[clause]]\nid = "LAMP-1"', "Object missing required field"),
        ('[[clause]]\nid = "LAMP-1"\nsource = ""\nsays = 3', "Expected `str`, got `int`"),
        ('[[clause]]\nid = "LAMP-1"\nsay = "It is lit."', "unknown field `say`"),
        ('[[clauses]]\nid = "LAMP-1"', "unknown field `clauses`"),
        ('[[applicability]]\nclauses = ["X-1"]\npromise = "so"\nhow = ""', "Invalid enum value"),
        ('[[applicability]]\nclause = "X-1"\npromise = "same"\nhow = ""', "field `clause`"),
        ('[[applicability]]\nclauses = "X-1"\npromise = "same"\nhow = ""', "Expected `array`"),
        ('[[applicability]]\nclauses = ["X-1"]\npromise = "same"\nhow = ""', "on which plane"),
    ],
)
def test_what_a_file_lacks_or_has_too_much_is_named_with_the_file(
    lamps: Path, text: str, why: str
) -> None:
    lamps.write_text(text)
    with pytest.raises(UsageError, match=r"^acme_declared/clauses\.toml: ") as caught:
        declared("acme_declared", "clauses.toml")
    assert why in str(caught.value)


def test_a_file_that_is_not_there_is_named(lamps: Path) -> None:
    with pytest.raises(UsageError, match=r"^acme_declared/clauses\.toml: "):
        declared("acme_declared", "clauses.toml")
