"""Which changes a source has, and that applying one changes nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fencepost.campaigns.mutants import mutations
from fencepost.campaigns.mutants.mutations import mutations_of


def changes(source: str) -> list[tuple[str, str]]:
    return [(one.was, one.now) for one in mutations_of("m", source.encode())]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", [("a < b", "(a <= b)")]),
        ("x = a == b", [("a == b", "(a != b)")]),
        ("x = a is not None", [("a is not None", "(a is None)")]),
        ("x = a in b", [("a in b", "(a not in b)")]),
        ("x = 1 < a < 3", [("1 < a < 3", "(1 < a <= 3)"), ("1 < a < 3", "(1 <= a < 3)")]),
        ("x = a and b", [("a and b", "(a or b)")]),
        ("if a:\n    pass", [("a", "(not a)")]),
        ("if a != b:\n    pass", [("a != b", "(a == b)")]),
        ("if a > b:\n    pass", [("a > b", "(a >= b)"), ("a > b", "(not a > b)")]),
        ("x = [a for a in b if a.good]", [("a.good", "(not a.good)")]),
        ("send(1)", [("send(1)", "pass")]),
        ("self.epoch = 3", [("self.epoch = 3", "pass")]),
        ("known[1] = 3", [("known[1] = 3", "pass")]),
        ("del known[1]", [("del known[1]", "pass")]),
        ("count += 1", [("count += 1", "count -= 1")]),
        ("def f():\n    return True", [("return True", "return False")]),
    ],
)
def test_comparisons_conditions_and_effects_change(
    source: str, expected: list[tuple[str, str]]
) -> None:
    assert sorted(changes(source)) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        "assert a < b, f'{a == b}'",
        "raise ValueError(a if b else c)",
        "x = f'{a if b else c}'",
        "x: dict[str, int] = {}",
        "epoch = 3",
        "def __init__(self):\n    self.epoch = 3",
        "def sentence(self):\n    return 'a' if self.b else 'c'",
        "def f(x=a < b):\n    return x",
    ],
)
def test_words_invariants_and_constructors_are_left_alone(source: str) -> None:
    assert changes(source) == []


def test_a_change_touches_its_own_span_only() -> None:
    source = "# äöü: offsets are in bytes\nx = ('ä', a < b)  # é\ny = 1\n".encode()
    (one,) = mutations_of("m", source)
    assert one.line == 2
    assert one.applied(source).decode() == (
        "# äöü: offsets are in bytes\nx = ('ä', (a <= b))  # é\ny = 1\n"
    )


def test_a_change_of_several_lines_leaves_the_numbers_of_the_others() -> None:
    source = b"if (\n    a\n    and b\n):\n    send(\n        1,\n    )\n    d()\n"
    for one in mutations_of("m", source):
        (last,) = (
            ast.walk(ast.parse(one.applied(source)))
            and [
                node
                for node in ast.walk(ast.parse(one.applied(source)))
                if isinstance(node, ast.Pass) or (isinstance(node, ast.Name) and node.id == "d")
            ][-1:]
        )
        assert last.lineno == 8, one


def test_every_change_of_a_module_is_python_and_differs() -> None:
    text = Path(mutations.__file__).read_bytes()
    original = ast.dump(ast.parse(text))
    found = mutations_of("mutations", text)
    assert len(found) > 10
    for one in found:
        assert ast.dump(ast.parse(one.applied(text))) != original, one
