"""Other sources for modules, and other code for functions, in the running process."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fencepost.campaigns.mutants.live import Sources, replace_functions

SOURCE = """\
from dataclasses import dataclass

LIMIT = 3

@dataclass(frozen=True, slots=True)
class Size:
    number: int

    def small(self):
        names = [name for name in "ab" if name < "b"]
        return self.number < LIMIT and names == ["a"]

def outer(number):
    def inner():
        return number + LIMIT
    return inner
"""


@pytest.fixture
def sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    package = tmp_path / "measured"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("measured.sizes")
    for name in ("measured.sizes", "measured"):
        sys.modules.pop(name, None)


def test_a_method_that_others_hold_already_has_the_new_code(sizes: ModuleType) -> None:
    held = sizes.Size(3).small
    assert not held()
    assert replace_functions(sizes, SOURCE.replace("number < LIMIT", "number <= LIMIT"))
    assert held()
    assert not sizes.Size(4).small()


def test_a_function_that_is_frozen_has_the_new_code_and_stays_frozen(sizes: ModuleType) -> None:
    """As all functions are once a session has collected its tests."""
    before = gc.get_freeze_count()
    gc.freeze()
    try:
        assert replace_functions(sizes, SOURCE.replace("number < LIMIT", "number <= LIMIT"))
        assert sizes.Size(3).small()
        assert gc.get_freeze_count() > 0
    finally:
        if not before:
            gc.unfreeze()


def test_a_comprehension_is_a_part_of_its_function(sizes: ModuleType) -> None:
    assert sizes.Size(2).small()
    assert replace_functions(sizes, SOURCE.replace('name < "b"', 'name <= "b"'))
    assert not sizes.Size(2).small()


def test_a_function_inside_another_changes_with_it(sizes: ModuleType) -> None:
    assert replace_functions(sizes, SOURCE.replace("number + LIMIT", "number - LIMIT"))
    assert sizes.outer(1)() == -2


def test_a_function_that_another_has_made_already_has_the_new_code(sizes: ModuleType) -> None:
    """As those that a module's constants hold."""
    held = sizes.outer(1)
    assert replace_functions(sizes, SOURCE.replace("number + LIMIT", "number - LIMIT"))
    assert held() == -2


def test_a_function_that_another_has_made_takes_no_code_with_other_variables(
    sizes: ModuleType,
) -> None:
    held = sizes.outer(1)
    assert not replace_functions(sizes, SOURCE.replace("number + LIMIT", "LIMIT"))
    assert held() == 4
    del held
    gc.collect()
    assert replace_functions(sizes, SOURCE.replace("number + LIMIT", "LIMIT"))
    assert sizes.outer(1)() == 3


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("number: int", "number: int = 3"),
        ("def outer", "def other"),
        ("slots=True", "slots=False"),
    ],
)
def test_what_is_executed_at_import_cannot_change(sizes: ModuleType, was: str, now: str) -> None:
    changed = SOURCE.replace(was, now).replace("number < LIMIT", "number <= LIMIT")
    assert not replace_functions(sizes, changed)
    assert not sizes.Size(3).small()


def test_a_source_is_imported_in_place_of_the_modules_own(
    sizes: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sys.modules["measured.sizes"]
    changed = SOURCE.replace("LIMIT = 3", "LIMIT = given")
    monkeypatch.setattr(
        sys, "meta_path", [Sources({"measured.sizes": changed}, {"given": 9}), *sys.meta_path]
    )
    again = importlib.import_module("measured.sizes")
    assert again.LIMIT == 9
    assert again.__file__ == sizes.__file__
