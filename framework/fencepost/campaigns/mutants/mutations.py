"""The mutations of a Python source: comparisons, conditions and effects, changed one at a time.

Pure: a mutation is a span of the source and the text that replaces it. What only words an error or
checks an invariant is left alone: assertions, raised errors and texts; and so are constructors.
`probed` is a source that reports when a mutation's span would have had another effect.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_COMPARED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_LEFT_ALONE = (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
_SKIPPED = frozenset({"__init__", "__repr__", "__str__", "sentence"})
"""Functions that only set up a value, or word something."""
NOTHING = "pass"
REACHED = "__reached__"
"""The function that a probed source calls: with a mutation's number, and with a function that says
whether the mutation changes the value here, if that is known."""
_PURE = frozenset(
    {"len", "min", "max", "any", "all", "isinstance", "set", "frozenset", "int", "get"}
)
"""Calls that change nothing; any other may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change of a module: the bytes `start` to `end` of its source become `now`."""

    module: str
    line: int
    was: str
    now: str
    start: int
    end: int
    statement: bool
    """Whether it changes a whole statement; otherwise an expression."""
    pure: bool
    """Whether it is an expression that can be evaluated once more without an effect."""

    def applied(self, source: bytes) -> bytes:
        """The source with the change; every other line keeps its number."""
        # A change that takes fewer lines would move all code below it, and a traceback would name
        # wrong lines.
        padding = "\n" * self.was.count("\n")
        now = self.now + padding if self.statement else self.now.replace("(", f"({padding}", 1)
        return source[: self.start] + now.encode() + source[self.end :]


def mutations_of(module: str, source: bytes) -> tuple[Mutation, ...]:
    """Every mutation of a module's source, in its order.

    Raises SyntaxError for a source that is not Python.
    """
    # Where each line begins, in bytes: the parser gives columns in bytes, too.
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found: dict[tuple[int, int, str], Mutation] = {}
    for node, now in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[node.end_lineno - 1] + node.end_col_offset
        one = Mutation(
            module=module,
            line=node.lineno,
            was=source[start:end].decode(),
            now=now,
            start=start,
            end=end,
            statement=isinstance(node, ast.stmt),
            pure=isinstance(node, ast.expr) and not any(map(_effects, ast.walk(node))),
        )
        found.setdefault((start, end, now), one)
    return tuple(found[place] for place in sorted(found))


def probed(source: bytes, mutations: Mapping[int, Mutation]) -> bytes:
    """The source with a call of `REACHED` before each of these mutations, by their numbers.

    Every line keeps its number. A change of a pure expression counts only where its value differs.
    """
    inserted: list[tuple[int, int, bytes]] = []
    for number, one in mutations.items():
        if one.statement:
            before, after = f"{REACHED}({number}); ", ""
        else:
            differs = f", lambda: ({_in_one_line(one.was)}) != {one.now}" if one.pure else ""
            before, after = f"({REACHED}({number}{differs}) or (", "))"
        size = one.end - one.start
        # Where spans are nested, the text of the longer one is outside.
        # At one place, openings come with the longest span first, and endings with the shortest
        # first; endings sort before openings, since their key is below every negative size.
        inserted.append((one.start, -size, before.encode()))
        inserted.append((one.end, size - len(source), after.encode()))
    parts, reached = [], 0
    for place, _, text in sorted(inserted, key=lambda one: one[:2]):
        parts += [source[reached:place], text]
        reached = place
    return b"".join([*parts, source[reached:]])


def _in_one_line(expression: str) -> str:
    return ast.unparse(ast.parse(f"({expression})"))


def _effects(node: ast.AST) -> bool:
    """Whether a node's evaluation may have an effect."""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        return called not in _PURE
    return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)


Place = ast.expr | ast.stmt


def _changes(node: ast.AST) -> Iterator[tuple[Place, str]]:
    """Spans below a node, each with the text that replaces it."""
    if isinstance(node, _LEFT_ALONE):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name in _SKIPPED:
            return
        for statement in node.body:
            yield from _changes(statement)
        return
    yield from _of(node)
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.AnnAssign) and child is node.annotation:
            continue
        yield from _changes(child)


def _of(node: ast.AST) -> Iterator[tuple[Place, str]]:
    """The changes of this node itself."""
    match node:
        case ast.Compare(ops=ops):
            for number, op in enumerate(ops):
                turned = [*ops[:number], _COMPARED[type(op)](), *ops[number + 1 :]]
                yield node, _text(ast.Compare(node.left, turned, node.comparators))
        case ast.BoolOp(op=ast.And()):
            yield node, _text(ast.BoolOp(ast.Or(), node.values))
        case ast.BoolOp(op=ast.Or()):
            yield node, _text(ast.BoolOp(ast.And(), node.values))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield from _negated(test)
        case ast.comprehension(ifs=ifs):
            for test in ifs:
                yield from _negated(test)
        case ast.Expr(value=ast.Call()) | ast.Delete():
            yield node, NOTHING
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, NOTHING
        case ast.AugAssign(op=ast.Add() | ast.Sub()):
            other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield node, ast.unparse(ast.AugAssign(node.target, other, node.value))
        case ast.Return(value=ast.Constant(value=bool() as value)):
            yield node, f"return {not value}"
        case _:
            pass


def _negated(test: ast.expr) -> Iterator[tuple[Place, str]]:
    """A condition's opposite; a comparison has one of its own."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1
    if not single or isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):  # type: ignore[attr-defined]
        yield test, _text(ast.UnaryOp(ast.Not(), test))


def _text(expression: ast.expr) -> str:
    return f"({ast.unparse(expression)})"
