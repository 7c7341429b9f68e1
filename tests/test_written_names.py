"""Names and paths between backticks exist: a renamed thing is renamed in the text about it, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("framework", "plugins", "clusters", "suites", "reports")
NOT_OURS = {
    "MY_DB": "an example of a name",
    "MyDb": "an example of a name",
    "client_started_kind": "an example of a column",
    "imok": "an answer of ZooKeeper's server",
    "my_db": "an example of a name",
    "Uuid": "a class of Kafka's",
    "toString": "a method of Java's",
    "validate_pyproject": "a package of others",
    "tool_schema": "an entry point of others",
}
"""Names in docstrings that nothing of ours has, each with its reason."""
NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
SHORT = re.compile(r"`([A-Z])` is\s+`([\w./-]+/)`")
"""A text may give a folder a letter, and write `S/common/` from then on."""
PATH = re.compile(r"`([\w./-]+(?:\.(?:py|toml|md|go)|/))`")


def files() -> Sequence[str]:
    """The files of the project; what begins with a dot is made by tools."""
    return [
        str(path.relative_to(ROOT))
        for top in sorted(ROOT.iterdir())
        if not top.name.startswith(".")
        for path in (sorted(top.rglob("*")) if top.is_dir() else [top])
        if path.is_file()
    ]


def docstrings(module: ast.Module) -> Sequence[ast.Constant]:
    """Every statement that is one string: docstrings of modules, definitions and attributes."""
    return [
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


def words(source: str, text: Sequence[ast.Constant]) -> set[str]:
    """Every word of the code, without comments and docstrings."""
    lines = source.splitlines()
    for one in text:
        lines[one.lineno - 1 : one.end_lineno] = [""] * ((one.end_lineno or 0) - one.lineno + 1)
    return {word for line in lines for word in re.findall(r"\w+", line.partition("#")[0])}


def unknown(text: str, known: set[str]) -> Iterator[str]:
    """The names between backticks of which a part is not known."""
    for name in NAME.findall(text):
        if not set(name.split(".")) <= known:
            yield name


def test_a_name_in_a_docstring_exists() -> None:
    sources = {name: (ROOT / name).read_text() for name in files() if name.endswith(".py")}
    text = {name: docstrings(ast.parse(source)) for name, source in sources.items()}
    known = {part for name in sources for part in Path(name).with_suffix("").parts} | {*NOT_OURS}
    for name, source in sources.items():
        known |= words(source, text[name])
    wrong = [
        f"{name}:{one.lineno}: {named}"
        for name, found in text.items()
        if Path(name).parts[0] in FOLDERS
        for one in found
        for named in unknown(str(one.value), known)
    ]
    assert wrong == []


def test_an_unknown_name_is_seen() -> None:
    assert list(unknown("See `spawn` of `runs.gone` and `1 + x`.", {"runs", "x"})) == [
        "spawn",
        "runs.gone",
    ]


def missing(written: str, present: Sequence[str]) -> bool:
    """Whether no path ends as the written one; `a/.../b` begins with `a/`."""
    start, _, end = written.rpartition(".../")
    return not any(path.startswith(f"/{start}") and path.endswith(f"/{end}") for path in present)


def paths(text: str) -> Iterator[str]:
    """The paths that a text names, in full."""
    short = dict(SHORT.findall(text))
    for path in PATH.findall(text):
        first, slash, rest = path.partition("/")
        yield f"{short[first]}{rest}" if slash and first in short else path


def test_a_path_in_text_exists() -> None:
    names = files()
    folders = {str(folder) for name in names for folder in Path(name).parents}
    present = [*(f"/{name}" for name in names), *(f"/{folder}/" for folder in folders)]
    wrong = [
        f"{name}: {path}"
        for name in names
        if name.endswith((".md", ".py")) and name != "tests/test_written_names.py"
        for path in paths((ROOT / name).read_text())
        if missing(path.lstrip("/"), present)
    ]
    assert wrong == []


def test_a_short_path_is_read_in_full() -> None:
    text = "`S` is `suites/ours/`, `R` is\n`reports/`. See `S/common/` and `other/a.py`."
    assert [*paths(text)] == ["suites/ours/", "reports/", "suites/ours/common/", "other/a.py"]


def test_a_missing_path_is_seen() -> None:
    present = ["/clusters/zookeeper/port.py", "/clusters/zookeeper/"]
    written = ["port.py", "clusters/.../port.py", "zookeeper/", "keeper/", "reports/.../port.py"]
    assert [path for path in written if missing(path, present)] == [
        "keeper/",
        "reports/.../port.py",
    ]
