"""The house rules that no linter knows, each with its reason."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp
import pytest

import fencepost
from fencepost import events
from fencepost.plugins.manager import load
from fencepost_clusters.reference.defects.catalogue import DEFECTS

ROOT = Path(__file__).parent.parent
FOLDERS = ("framework", "plugins", "clusters", "suites", "reports")
PACKAGES = (
    *("fencepost", "fencepost_plugins", "fencepost_kafka"),
    *("fencepost_clusters", "fencepost_suites", "fencepost_reports"),
)
SKELETONS = [ROOT / "framework" / "fencepost" / name for name in ("skeleton", "skeleton_program")]
EXAMPLES = sorted(path for folder in SKELETONS for path in folder.rglob("*.py"))
"""What `fencepost new-system` writes: third-party code, which is imported only where it was written
to."""
SOURCES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if not any(path.is_relative_to(folder) for folder in SKELETONS)
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
JUDGES = [path for path in SOURCES if path.is_relative_to(ROOT / "suites") or "rules" in path.parts]
"""The suites, and the rules of a system's own."""
MARKDOWN = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts
    )
)

MOST_BY_POSITION = 5
MOST_TO_CONSTRUCT = 6
TAKE_ANY_NUMBER = {
    *("pack", "pack_into", "datetime", "one_of", "select", "add_row", "exit_reason"),
    # helpers of tests, and one of the simulator's network, that take a list of values
    *("run", "play", "poll", "led", "ran", "asks", "made", "_schedule"),
    *("second", "Terminals", "runpytest"),  # the words of a command line
    "on",  # the kinds of events that a method handles
    "reading",  # and those that a second reading reads
}
PUBLIC = {"fencepost", "fencepost.images", "fencepost.testing"}
PUBLIC_TO_REPORTS = PUBLIC | {"fencepost.columns", "fencepost.reporting"}
BASES = {
    *("Protocol", "Struct", "StrEnum", "IntEnum", "Enum", "NamedTuple", "TypedDict"),
    *("Exception", "AssertionError", "KeyboardInterrupt", "ValueError", "UserWarning"),
    *("FencepostError", "UsageError", "Generic", "BaseException"),
    # asyncio's and socketserver's callbacks are classes to be derived from.
    *("BufferedProtocol", "BaseRequestHandler"),
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def text(path: Path) -> str:
    return path.read_text()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), filename=str(path))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(among: Iterable[ast.AST]) -> Iterator[str]:
    """The modules that these nodes import."""
    for node in among:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_a_call_has_at_most_five_arguments_without_a_name() -> None:
    """No tool finds two swapped arguments of one type."""
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES + EXAMPLES + TESTS
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and len(node.args) > MOST_BY_POSITION
        and ast.unparse(node.func).rpartition(".")[2] not in TAKE_ANY_NUMBER
    ]
    assert wrong == []


def test_a_constructor_has_at_most_six_arguments() -> None:
    """More of them are a value object that is missing."""
    wrong = [
        f"{relative(path)}:{node.lineno}: {node.name}"
        for path in SOURCES + EXAMPLES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        for made in node.body
        if isinstance(made, ast.FunctionDef)
        and made.name == "__init__"
        and len(made.args.args) - 1 + len(made.args.kwonlyargs) > MOST_TO_CONSTRUCT
    ]
    assert wrong == []


def test_an_event_takes_its_fields_by_name_only() -> None:
    assert [kind for kind in load().event_kinds if kind.__match_args__] == []


@pytest.mark.tool
@pytest.mark.parametrize(
    "snippet",
    [
        "import time\ntime.sleep(1)",
        "import time\nprint(time.time())",
        "import random\nprint(random.random())",
        "from random import choice\nprint(choice([1]))",
        "import asyncio\n\n\nasync def f() -> None:\n    await asyncio.sleep(1)",
    ],
)
def test_waiting_and_chance_are_banned_by_the_linter(snippet: str) -> None:
    """A sleep hides the event that should be awaited; unseeded chance cannot be replayed."""
    ruff = [str(Path(sys.executable).with_name("ruff")), "check", "--output-format=concise"]
    done = subprocess.run(
        [*ruff, "--stdin-filename", "framework/fencepost/sample.py", "-"],
        input=snippet + "\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert "TID251" in done.stdout


def loaded_by(graph: grimp.ImportGraph, module: str) -> Iterator[str]:
    """Modules loaded by an import, with their packages, except packages being loaded already."""
    for name in graph.find_modules_directly_imported_by(module):
        yield name
        while name := name.rpartition(".")[0]:
            if not f"{module}.".startswith(f"{name}."):
                yield name


def test_every_module_imports_alone() -> None:
    """In a graph without a cycle, no module meets another that is loaded only in part, whichever is
    imported first."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    missing = {module_name(path) for path in SOURCES} - graph.modules
    assert missing == set()
    order = graphlib.TopologicalSorter({name: {*loaded_by(graph, name)} for name in graph.modules})
    order.prepare()  # raises CycleError, which names the modules of a cycle


@pytest.mark.tool
def test_the_public_api_is_light() -> None:
    """Every node and every client worker imports it before it can answer."""
    code = "import fencepost, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "subprocess", "socket", "logging", "pytest", "typer", "rich", "jinja2"}
    heavy |= {"kio", "confluent_kafka", "requests", "http", "pyspark"}
    assert heavy & {name.split(".")[0] for name in done.stdout.split()} == set()


def test_every_public_name_is_there() -> None:
    assert [name for name in fencepost.__all__ if not hasattr(fencepost, name)] == []


def test_every_event_kind_is_public() -> None:
    assert {kind.__name__ for kind in events.KINDS} <= set(fencepost.__all__)


def test_only_the_public_api_is_imported() -> None:
    """First-party plugins and clusters reach the framework as third parties do."""
    wrong = [
        f"{relative(path)}: {name}"
        for path in [*(p for p in SOURCES if not relative(p).startswith("framework/")), *EXAMPLES]
        for name in imported(nodes(path))
        if name.split(".")[0] == "fencepost"
        and name not in (PUBLIC_TO_REPORTS if relative(path).startswith("reports/") else PUBLIC)
    ]
    assert wrong == []


def test_no_import_only_for_types() -> None:
    """Such a block is the price of an import cycle: a concept is in the wrong place."""
    assert [relative(path) for path in SOURCES if "TYPE_CHECKING" in text(path)] == []


def bases(node: ast.ClassDef) -> Iterator[str]:
    """The names of the classes that a class derives from."""
    for base in (one.value if isinstance(one, ast.Subscript) else one for one in node.bases):
        if isinstance(base, ast.Attribute | ast.Name):
            yield base.attr if isinstance(base, ast.Attribute) else base.id


def test_nothing_is_inherited_but_protocols_exceptions_and_the_shape_of_a_rule() -> None:
    """Rules that read the same may have a base of their own."""
    classes = [
        (f"{relative(path)}:{node.lineno}", node)
        for path in SOURCES + EXAMPLES
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    ]
    rules = {"Rule"}
    for _ in range(3):
        rules |= {node.name for _, node in classes if rules & {*bases(node)}}
    wrong = [place for place, node in classes if not {*bases(node)} <= {*BASES, *rules}]
    assert wrong == []


def test_links_in_markdown_resolve() -> None:
    wrong = [
        f"{relative(path)}: {target}"
        for path in MARKDOWN
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text(path))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert wrong == []


def lines_with(pattern: str) -> list[str]:
    """Where in sources, tests and pages the pattern is found."""
    found = re.compile(pattern)
    return [
        f"{relative(path)}:{number}: {line.strip()}"
        for path in SOURCES + EXAMPLES + TESTS + MARKDOWN
        if found.search(text(path))
        for number, line in enumerate(text(path).splitlines(), start=1)
        if found.search(line)
    ]


def test_the_project_speaks_of_itself_alone() -> None:
    """Paths of one machine and names of package hosts do not belong in the repository."""
    private = ["/" + "work/", "/" + "root/", "pypi" + r"\.", "issue #" + r"\d"]
    assert lines_with("|".join(private)) == []


PATHS = ("suites/fencepost_suites/replication/without_controller.py",)
"""Files whose regular expressions are for paths of nodes in ZooKeeper, which are no sentences."""
JUDGING = [
    *JUDGES,
    *(p for p in SOURCES if p.is_relative_to(ROOT / "framework" / "fencepost" / "judging")),
    *(p for p in SOURCES if p.is_relative_to(ROOT / "reports" / "fencepost_reports" / "one_run")),
    *(p for p in SOURCES if "findings" in p.parts),
]


SENTENCES = ("message", "says", "sentence", "words", "reason")


def reads_in(node: ast.Compare, *names: str) -> bool:
    """Whether it asks what an attribute of one of these names has in it."""
    return any(
        isinstance(op, ast.In | ast.NotIn)
        and isinstance(right, ast.Attribute)
        and right.attr in names
        for op, right in zip(node.ops, node.comparators, strict=True)
    )


def test_no_judge_reads_a_sentence() -> None:
    """Facts are fields: sentences are made of them, for people. So nothing that judges, finds
    causes or knows findings has a regular expression, or asks what a sentence has in it."""
    wrong = []
    for path in JUDGING:
        if path.name.startswith("test_"):
            continue
        if "re" in imported(nodes(path)) and relative(path) not in PATHS:
            wrong.append(f"{relative(path)}: re")
        for node in nodes(path):
            if isinstance(node, ast.Compare) and reads_in(node, *SENTENCES):
                wrong.append(f"{relative(path)}:{node.lineno}")
    assert wrong == []


WORDING = {
    # about the sentence of a verdict: crashed rules, missed faults, a history that lacks events
    "tests/framework/judging/test_judge.py",
    "tests/clusters/apache_kafka/test_owed_kinds.py",
    "tests/clusters/apache_kafka/zookeeper_mode/test_real_bad_zookeeper.py",
}
"""Tests that are about the words of a verdict's reason."""
SAID_BY_NODES = ROOT / "tests" / "clusters" / "reference"
"""Tests of nodes: the reasons in these are those that events of nodes state."""


def test_no_test_of_logic_reads_why_something_was_not_judged() -> None:
    """It is `Verdict.excuses` and `Verdict.undecided`, by their facts."""
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in TESTS
        if relative(path) not in WORDING and not path.is_relative_to(SAID_BY_NODES)
        for node in nodes(path)
        if isinstance(node, ast.Compare) and reads_in(node, "reason")
    ]
    assert wrong == []


def looks_at_defects(module: ast.Module) -> Iterator[str]:
    """Where it asks which defects are on: by attribute, by name as `getattr` does, in run.json."""
    asked = {"defects", "policies"}
    words = asked | {defect.name for defect in DEFECTS}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in asked:
            yield node.attr
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (node.value in words or "run.json" in node.value)
        ):
            yield node.value
    for name in imported(ast.walk(module)):
        if {"defects", "policies", "run_folder"} & {*name.split(".")}:
            yield name


def test_no_rule_and_no_suite_can_see_which_defects_are_on() -> None:
    """A judge must not know which defect it is to find: no name of a defect, no switch, no
    run.json."""
    seen = [f"{relative(path)}: {what}" for path in JUDGES for what in looks_at_defects(tree(path))]
    assert seen == []


@pytest.mark.parametrize(
    "snippet",
    [
        "shape.defects",
        "getattr(shape, 'defects')",
        "json.loads((folder / 'run.json').read_text())['shape']",
        "open(f'{folder}/run.json')",
        f"'{DEFECTS[0].name}' in said",
        "from fencepost_clusters.reference.defects.catalogue import DEFECTS",
        "import fencepost.history.run_folder",
    ],
)
def test_a_look_at_defects_is_seen(snippet: str) -> None:
    assert list(looks_at_defects(ast.parse(snippet)))
