"""`[tool.fencepost]` of pyproject.toml: the settings that it gives, and those that are refused."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fencepost import UsageError
from fencepost.events.integers import MOST
from fencepost.model.configuration import (
    NAMES,
    configured,
    configured_for,
    from_environment,
    schema,
    seed_of,
)


def test_only_settings_that_are_set_are_returned() -> None:
    assert configured("[tool.fencepost]\nseed = 7\ndefects = ['a']\n") == {
        "seed": 7,
        "defects": ("a",),
    }
    assert configured("[project]\nname = 'x'\n") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.fencepost]\nseeed = 7", "did you mean 'seed'?"),
        ("[tool.fencepost]\nseed = 'x'", "Expected `int | null`, got `str` - at `$.seed`"),
        ("[tool]\nfencepost = 3", "Expected `object`, got `int` - at `$.tool.fencepost`"),
        ("[tool.fencepost", "no valid [tool.fencepost]"),
        (f"a = {'[' * 5000}{']' * 5000}", "it is nested too deeply"),
        ('[tool.fencepost]\nout = "a\\u0000b"', "`out` is no path: it has a NUL"),
    ],
)
def test_bad_settings_are_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        configured(text)
    (line,) = str(refused.value).splitlines()
    assert says in line


def test_the_nearest_file_decides_and_its_folder_is_where_out_begins(tmp_path: Path) -> None:
    below = tmp_path / "inner" / "below"
    below.mkdir(parents=True)
    for folder, seed in ((tmp_path, 1), (tmp_path / "inner", 2)):
        text = f"[tool.fencepost]\nseed = {seed}\nout = 'kept'\n"
        (folder / "pyproject.toml").write_text(text)
    assert configured_for(below) == {"seed": 2, "out": str(tmp_path / "inner" / "kept")}
    (tmp_path / "inner" / "pyproject.toml").write_text("[tool.fencepost]\nsedd = 2\n")
    with pytest.raises(UsageError, match=r"inner/pyproject.toml: no key .* did you mean 'seed'"):
        configured_for(below)


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[project]\nname = '\xff'\n")
    with pytest.raises(UsageError, match=r"pyproject\.toml: it is not UTF-8"):
        configured_for(tmp_path)


def test_the_schema_that_editors_find_names_every_key_and_no_other() -> None:
    (entry,) = entry_points(group="validate_pyproject.tool_schema", name="fencepost")
    published = entry.load()("fencepost")
    assert published == schema()
    assert set(published["properties"]) == {*NAMES, "app", "checks"}
    assert published["additionalProperties"] is False
    number = {"type": "integer", "minimum": 0, "maximum": MOST}
    assert published["properties"]["seed"]["anyOf"] == [number, {"type": "null"}]
    assert published["properties"]["defects"]["items"] == {"type": "string"}


def test_variables_of_the_environment_give_settings_and_empty_ones_do_not() -> None:
    variables = {"FENCEPOST_SEED": "7", "FENCEPOST_OUT": "", "FENCEPOST_DOCKER": "required"}
    assert from_environment(variables) == {"seed": "7"}


@pytest.mark.parametrize(
    ("text", "seed"),
    [("0", 0), (f"{MOST}", MOST), (f"{MOST + 1}", None), ("9" * 9000, None), ("-1", None)],
)
def test_a_seed_fits_into_a_column_of_a_table(text: str, seed: int | None) -> None:
    assert seed_of(text) == seed
